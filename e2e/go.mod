module github.com/cart-llm/cart/e2e

go 1.24

replace github.com/cart-llm/cart => ../

require (
	github.com/cart-llm/cart v0.0.0
	github.com/go-viper/mapstructure/v2 v2.5.0
	github.com/traefik/yaegi v0.16.1
	gopkg.in/yaml.v3 v3.0.1
)

require (
	github.com/mitchellh/mapstructure v1.5.1-0.20231216201459-8508981c8b6c // indirect
	github.com/traefik/genconf v0.5.2 // indirect
	github.com/traefik/paerser v0.2.0 // indirect
)
