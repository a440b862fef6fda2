package main

import (
	"fmt"

	"github.com/cart-llm/cart/e2e/report"
)

// perSize has the factors of limits that differ by body.
var perSize = []struct {
	size       int
	rate, late float64 // against sglang-router: least req/s, most p50
}{
	{1 << 10, 0.8, 1.25}, {32 << 10, 1, 1}, {128 << 10, 1, 1}, {1 << 20, 1, 1},
}

// limits are points 1 (32 clients) and 2 (one client), both about CART interpreted, for the sizes of the run.
func limits(r *results, o *options) []report.Limit {
	var out []report.Limit
	chat := allShapes[0]
	at := func(sh *shape, size, conc int, name string) figures { return r.of(cell{sh, size, conc, name}) }
	wanted := map[int]bool{}
	for _, size := range o.sizes {
		wanted[size] = true
	}
	for _, p := range perSize {
		if !wanted[p.size] {
			continue
		}
		cart := at(chat, p.size, 32, interpreted)
		for _, other := range []struct {
			name string
			than float64
		}{{sglangRouter, p.rate}, {vllmRouter, 2}} {
			f := at(chat, p.size, 32, other.name)
			out = append(out, report.Limit{
				Text: fmt.Sprintf("1. chat, %s, 32 clients: req/s >= %g x %s", sizeName(p.size), other.than, other.name),
				Got:  cart.rate / f.rate, Than: other.than, How: fmt.Sprintf("%.0f / %.0f", cart.rate, f.rate),
			})
		}
	}
	for _, p := range perSize {
		if !wanted[p.size] {
			continue
		}
		cart, sglang, own := at(chat, p.size, 1, interpreted), at(chat, p.size, 1, sglangRouter), at(chat, p.size, 1, wrr)
		most := func(what string, a, b, than float64) {
			out = append(out, report.Limit{
				Text: fmt.Sprintf("2. %s, 1 client: %s", sizeName(p.size), what), Got: a / b, Most: true, Than: than,
				How: fmt.Sprintf("%.0f / %.0f us", a, b),
			})
		}
		most(fmt.Sprintf("chat, p50 <= %g x sglang-router", p.late), cart.p50, sglang.p50, p.late)
		most("chat, p50 <= 1.4 x wrr", cart.p50, own.p50, 1.4)
		most("chat, p99 <= 2.5 x sglang-router", cart.p99, sglang.p99, 2.5)
		for _, sh := range o.shapes {
			if sh != chat {
				most(sh.name+", p50 <= 1.3 x chat", at(sh, p.size, 1, interpreted).p50, cart.p50, 1.3)
			}
		}
	}
	return out
}
