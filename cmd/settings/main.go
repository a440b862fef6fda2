// Command settings writes the tables of settings in README.md and docs/settings.md from the comments of cart's Config and
// the defaults of CreateConfig, so that they cannot drift. Run it by make settings; a test tells when that was forgotten.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "settings:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("one argument is wanted: the project's root")
	}
	pages, err := render(args[0])
	if err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
