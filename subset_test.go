//go:build gc
// +build gc

// The second line is for Yaegi, which reads no other constraint and has no such tag: it skips this file.

package cart

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// subsetRule is one kind of Go that Yaegi v0.16.1 does not run as the compiler does. Its file in testdata/subset shows
// what it refuses (the lines marked "// bad") beside what it allows.
type subsetRule struct {
	name  string
	why   string
	check func(*subsetPass)
}

var subsetRules = []subsetRule{
	// Traefik exits, or every plugin is disabled.
	{"imports", "not among the packages that Traefik gives a plugin, or not vendored for it", checkImports},
	{"range-int", "panics at load, which ends Traefik; write a three-clause loop", rangeOver(isInteger)},
	{"range-func", "panics at load, which ends Traefik; call the function", rangeOver(isFunc)},
	{"range-array-pointer", "panics; range over a slice", rangeOver(isArrayPointer)},
	{"builtins", "min, max and clear are undefined; write the comparison or the loop", checkBuiltins},
	{"std-generics", "undefined but for slices.Contains, slices.Index and cmp.Compare; use sort, atomic.Value, a loop",
		checkStdGenerics},
	{"generics", "type parameters fail for more than the simplest forms; write it out", checkGenerics},
	{"method-expressions", "panic; use a closure", checkMethodExpressions},
	{"log-new", "is not a *log.Logger there; use slog.NewLogLogger", usesOf("log", "New")},

	// A request panics.
	{"compiled-literals", "a value of our own type for an interface field of a compiled struct panics in the literal; " +
		"assign the field afterwards", checkCompiledLiterals},
	{"errors-as", "panics for a type of this package; use errors.Is or a type assertion", checkErrorsAs},
	{"shifts", "an untyped constant becomes an int and the operation around it panics; write uint64(1) << n", checkShifts},
	{"nil-in-tuple", "panics; assign one by one", checkNilInTuple},
	{"abort-panic", "arrives wrapped: a stack trace and a 500; let httputil's own panic pass", checkAbortPanic},
	{"goroutine-recover", "a panic in a goroutine ends Traefik; defer a recover in it", checkGoroutineRecover},

	// Silently something else happens.
	{"select-exit", "leaves the select only, or the loop too early; return from a function that holds the loop",
		checkSelectExit},
	{"select", "all goroutines at one statement share its cases: one waits for another's channel, for ever; receive from " +
		"a context made with a timeout, or sleep", checkSelect},
	{"call-in-tuple", "with = the call and its neighbours overwrite each other; assign one by one", checkCallInTuple},
	{"unnamed-params", "has no place for its arguments, which land in its variables or panic; name them, _ will do",
		checkUnnamedParams},
	{"stale-results", "a named result begins with what the caller's variable holds, not with zero; assign it first, or " +
		"use a variable of its own", checkStaleResults},
	{"for-reinit", "sets its variables again on each turn; declare them before the loop", checkForReinit},
	{"defer-closure", "the body runs, then a core spins for ever; defer func() { f() }()", checkDeferClosure},
	{"late-binding", "receiver and arguments are read when the call runs, not at the statement; call a func literal " +
		"that reads what is meant, or a helper", checkLateBinding},
	{"loop-closure", "every literal may see the last turn's variable; build it in a function that takes the value",
		checkLoopClosure},
	{"response-writer", "loses Flusher and Hijacker: a stream arrives at its end; pass the native one on",
		checkResponseWriter},
	{"json-types", "unexported fields leak, embedded ones are not flattened, nested (Un)MarshalJSON is ignored; " +
		"use a struct of exported fields for the wire", checkJSONTypes},
	{"shape-identity", "types of the same shape are one: as keys and in type switches they collide; use a pointer " +
		"as key, a method or a kind field to tell apart", checkShapeIdentity},
	{"duration-fields", "decoders do not see the methods of an interpreted type, so 5s fails and 5 is 5 ns; declare a " +
		"string and parse it", checkDurationFields},
}

func TestSubset_root(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	packages := map[string][]*ast.File{}
	for _, name := range names {
		f := parseSubsetFile(t, fset, name)
		if !skippedByYaegi(f) {
			packages[f.Name.Name] = append(packages[f.Name.Name], f)
		}
	}
	imp := &ownImporter{exports: subsetImporter(t, fset)}
	imp.own = checkSubsetTypes(t, fset, imp, "github.com/cart-llm/cart", packages["cart"], reportSubset(t))
	if tests := packages["cart_test"]; len(tests) > 0 {
		checkSubsetTypes(t, fset, imp, "github.com/cart-llm/cart_test", tests, reportSubset(t))
	}
}

func TestSubset_rules(t *testing.T) {
	for _, rule := range subsetRules {
		t.Run(rule.name, func(t *testing.T) {
			name := filepath.Join("testdata", "subset", rule.name+".go")
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var want []int
			for i, line := range strings.Split(string(source), "\n") {
				if strings.HasSuffix(line, "// bad") {
					want = append(want, i+1)
				}
			}
			if len(want) == 0 {
				t.Fatalf("%s has no line marked // bad", name)
			}
			seen := map[int]bool{}
			fset := token.NewFileSet()
			report := func(got subsetRule, pos token.Position) {
				if got.name == rule.name {
					seen[pos.Line] = true
				}
			}
			files := []*ast.File{parseSubsetFile(t, fset, name)}
			checkSubsetTypes(t, fset, subsetImporter(t, fset), "github.com/cart-llm/cart", files, report)
			var got []int
			for line := range seen {
				got = append(got, line)
			}
			sort.Ints(got)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: refused lines = %v, want %v", name, got, want)
			}
		})
	}
}

func reportSubset(t *testing.T) func(subsetRule, token.Position) {
	return func(rule subsetRule, pos token.Position) {
		t.Errorf("%s: %s: %s", pos, rule.name, rule.why)
	}
}

// checkSubsetTypes type-checks the files of one package and runs every rule on it.
func checkSubsetTypes(t *testing.T, fset *token.FileSet, imp types.Importer, path string, files []*ast.File,
	report func(subsetRule, token.Position)) *types.Package {
	t.Helper()
	info := &types.Info{
		Types:      map[ast.Expr]types.TypeAndValue{},
		Defs:       map[*ast.Ident]types.Object{},
		Uses:       map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{},
	}
	pkg, err := (&types.Config{Importer: imp}).Check(path, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	pass := &subsetPass{fset: fset, files: files, info: info, functions: map[*types.Func]*ast.FuncDecl{}}
	for _, f := range files {
		for _, decl := range f.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				pass.functions[info.Defs[fn.Name].(*types.Func)] = fn
			}
		}
	}
	for _, rule := range subsetRules {
		pass.report = func(pos token.Pos) { report(rule, fset.Position(pos)) }
		rule.check(pass)
	}
	return pkg
}

func parseSubsetFile(t *testing.T, fset *token.FileSet, name string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// skippedByYaegi tells whether the file has the constraint that this file has.
func skippedByYaegi(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, comment := range group.List {
			if group.Pos() < f.Package && comment.Text == "// +build gc" {
				return true
			}
		}
	}
	return false
}

// ownImporter adds the package under test, for its external tests.
type ownImporter struct {
	exports types.Importer
	own     *types.Package
}

func (i *ownImporter) Import(path string) (*types.Package, error) {
	if i.own != nil && path == i.own.Path() {
		return i.own, nil
	}
	return i.exports.Import(path)
}

// subsetExports is where the go command keeps the types of each package that the root or a file of testdata imports.
var subsetExports struct {
	once  sync.Once
	files map[string]string
	err   error
}

func subsetImporter(t *testing.T, fset *token.FileSet) types.Importer {
	t.Helper()
	subsetExports.once.Do(func() { subsetExports.files, subsetExports.err = listExports() })
	if subsetExports.err != nil {
		t.Fatal(subsetExports.err)
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		name, ok := subsetExports.files[path]
		if !ok {
			return nil, fmt.Errorf("no types of package %s", path)
		}
		return os.Open(name)
	})
}

func listExports() (map[string]string, error) {
	args := []string{"list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}", "--"}
	seen := map[string]bool{"github.com/cart-llm/cart": true}
	for _, pattern := range []string{"*.go", "testdata/subset/*.go"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
			if err != nil {
				return nil, err
			}
			for _, spec := range f.Imports {
				path, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return nil, err
				}
				if !seen[path] {
					seen[path] = true
					args = append(args, path)
				}
			}
		}
	}
	out, err := exec.Command("go", args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("go list: %w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		path, name, _ := strings.Cut(line, " ")
		files[path] = name
	}
	return files, nil
}
