//go:build gc
// +build gc

package cart

import (
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
	"strings"
)

// subsetPass is what a rule sees of one package.
type subsetPass struct {
	fset      *token.FileSet
	files     []*ast.File
	info      *types.Info
	functions map[*types.Func]*ast.FuncDecl
	report    func(token.Pos)
}

// each calls visit for every node with the nodes around it, outermost first.
func (p *subsetPass) each(visit func(n ast.Node, around []ast.Node)) {
	for _, f := range p.files {
		var around []ast.Node
		ast.Inspect(f, func(n ast.Node) bool {
			if n == nil {
				around = around[:len(around)-1]
				return false
			}
			visit(n, around)
			around = append(around, n)
			return true
		})
	}
}

func (p *subsetPass) inTest(pos token.Pos) bool {
	return strings.HasSuffix(p.fset.Position(pos).Filename, "_test.go")
}

var (
	noYaegiPackage = map[string]bool{
		"C": true, "crypto/hkdf": true, "embed": true, "iter": true, "os/exec": true, "plugin": true, "syscall": true,
		"testing/synctest": true, "unique": true, "unsafe": true, "weak": true,
	}
	vendoredPackage = map[string]bool{
		"github.com/traefik/genconf/dynamic": true,
		"github.com/traefik/paerser/types":   true, // paerser/parser panics at load
	}
)

func checkImports(p *subsetPass) {
	for _, f := range p.files {
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			own := path == "github.com/cart-llm/cart"
			if err != nil || noYaegiPackage[path] || !own && !isStdPath(path) && !vendoredPackage[path] {
				p.report(spec.Pos())
			}
		}
	}
}

func rangeOver(bad func(types.Type) bool) func(*subsetPass) {
	return func(p *subsetPass) {
		p.each(func(n ast.Node, _ []ast.Node) {
			if r, ok := n.(*ast.RangeStmt); ok && bad(p.info.TypeOf(r.X).Underlying()) {
				p.report(r.Pos())
			}
		})
	}
}

func isInteger(t types.Type) bool {
	basic, ok := t.(*types.Basic)
	return ok && basic.Info()&types.IsInteger != 0
}

func isFunc(t types.Type) bool {
	_, ok := t.(*types.Signature)
	return ok
}

func isArrayPointer(t types.Type) bool {
	pointer, ok := t.(*types.Pointer)
	if !ok {
		return false
	}
	_, ok = pointer.Elem().Underlying().(*types.Array)
	return ok
}

func checkBuiltins(p *subsetPass) {
	p.eachUse(func(id *ast.Ident, obj types.Object) {
		if _, ok := obj.(*types.Builtin); ok && (id.Name == "min" || id.Name == "max" || id.Name == "clear") {
			p.report(id.Pos())
		}
	})
}

func (p *subsetPass) eachUse(visit func(*ast.Ident, types.Object)) {
	p.each(func(n ast.Node, _ []ast.Node) {
		if id, ok := n.(*ast.Ident); ok && p.info.Uses[id] != nil {
			visit(id, p.info.Uses[id])
		}
	})
}

func usesOf(path, name string) func(*subsetPass) {
	return func(p *subsetPass) {
		p.eachUse(func(id *ast.Ident, obj types.Object) {
			if isObject(obj, path, name) {
				p.report(id.Pos())
			}
		})
	}
}

func checkStdGenerics(p *subsetPass) {
	p.eachUse(func(id *ast.Ident, obj types.Object) {
		if obj.Pkg() == nil || !isStdPath(obj.Pkg().Path()) || isObject(obj, "slices", "Contains") ||
			isObject(obj, "slices", "Index") || isObject(obj, "cmp", "Compare") {
			return
		}
		switch t := obj.Type().(type) {
		case *types.Named:
			if _, isType := obj.(*types.TypeName); isType && t.TypeParams().Len() > 0 {
				p.report(id.Pos())
			}
		case *types.Signature:
			iterates := false
			for i := 0; i < t.Results().Len(); i++ {
				named, ok := t.Results().At(i).Type().(*types.Named)
				iterates = iterates || ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "iter"
			}
			if iterates || t.TypeParams().Len() > 0 {
				p.report(id.Pos())
			}
		}
	})
}

func checkGenerics(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		var params *ast.FieldList
		switch n := n.(type) {
		case *ast.FuncDecl:
			params = n.Type.TypeParams
		case *ast.TypeSpec:
			params = n.TypeParams
		}
		if params != nil {
			p.report(params.Pos())
		}
	})
}

func checkMethodExpressions(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		sel, ok := n.(*ast.SelectorExpr)
		if ok && p.info.Selections[sel] != nil && p.info.Selections[sel].Kind() == types.MethodExpr {
			p.report(sel.Pos())
		}
	})
}

func checkCompiledLiterals(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || isOwnType(p.info.TypeOf(lit)) {
			return
		}
		fields, ok := p.info.TypeOf(lit).Underlying().(*types.Struct)
		if !ok {
			return
		}
		for i, elt := range lit.Elts {
			field, value := i, elt
			if kv, ok := elt.(*ast.KeyValueExpr); ok {
				field, value = fieldIndex(fields, kv.Key.(*ast.Ident).Name), kv.Value
			}
			iface, ok := fields.Field(field).Type().Underlying().(*types.Interface)
			valueType := p.info.TypeOf(value)
			if ok && !iface.Empty() && !types.IsInterface(valueType) && isOwnType(valueType) {
				p.report(value.Pos())
			}
		}
	})
}

func fieldIndex(s *types.Struct, name string) int {
	for i := 0; i < s.NumFields(); i++ {
		if s.Field(i).Name() == name {
			return i
		}
	}
	panic("no field " + name)
}

func checkErrorsAs(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 || !isObject(p.callee(call), "errors", "As") {
			return
		}
		if target, ok := p.info.TypeOf(call.Args[1]).(*types.Pointer); ok && isOwnType(target.Elem()) {
			p.report(call.Pos())
		}
	})
}

// checkShifts refuses a shift whose left side is a constant without a type of its own; one that the compiler computes
// is fine.
func checkShifts(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		shift, ok := n.(*ast.BinaryExpr)
		if ok && (shift.Op == token.SHL || shift.Op == token.SHR) && p.info.Types[shift].Value == nil &&
			p.isUntypedConstant(shift.X) {
			p.report(shift.Pos())
		}
	})
}

func (p *subsetPass) isUntypedConstant(e ast.Expr) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return isUntypedObject(p.info.Uses[e])
	case *ast.SelectorExpr:
		return isUntypedObject(p.info.Uses[e.Sel])
	case *ast.UnaryExpr:
		return p.isUntypedConstant(e.X)
	case *ast.BinaryExpr:
		return p.isUntypedConstant(e.X) && p.isUntypedConstant(e.Y)
	}
	return false
}

func isUntypedObject(obj types.Object) bool {
	constant, ok := obj.(*types.Const)
	if !ok {
		return false
	}
	basic, ok := constant.Type().(*types.Basic)
	return ok && basic.Info()&types.IsUntyped != 0
}

func checkAbortPanic(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return
		}
		builtin, ok := p.callee(call).(*types.Builtin)
		if ok && builtin.Name() == "panic" && isObject(p.objectOf(call.Args[0]), "net/http", "ErrAbortHandler") {
			p.report(call.Pos())
		}
	})
}

// checkGoroutineRecover leaves tests alone: there a panic is a failed test.
func checkGoroutineRecover(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		if stmt, ok := n.(*ast.GoStmt); ok && !p.inTest(stmt.Pos()) && !p.recovers(stmt.Call) {
			p.report(stmt.Pos())
		}
	})
}

// recovers tells whether the called function, a literal or one of this package, defers a recover; a literal whose only
// statement calls such a function does too.
func (p *subsetPass) recovers(call *ast.CallExpr) bool {
	body := p.bodyOf(call)
	if body == nil {
		return false
	}
	for _, stmt := range body.List {
		if deferred, ok := stmt.(*ast.DeferStmt); ok && p.callsRecover(p.bodyOf(deferred.Call)) {
			return true
		}
	}
	if len(body.List) != 1 {
		return false
	}
	only, ok := body.List[0].(*ast.ExprStmt)
	if !ok {
		return false
	}
	inner, ok := only.X.(*ast.CallExpr)
	return ok && p.recovers(inner)
}

// callsRecover looks at the body itself only: recover works nowhere else.
func (p *subsetPass) callsRecover(body *ast.BlockStmt) bool {
	found := false
	if body == nil {
		return false
	}
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			builtin, ok := p.callee(call).(*types.Builtin)
			found = found || ok && builtin.Name() == "recover"
		}
		_, isLit := n.(*ast.FuncLit)
		return !isLit
	})
	return found
}

// bodyOf returns the body of the called literal or function of this package, nil for any other.
func (p *subsetPass) bodyOf(call *ast.CallExpr) *ast.BlockStmt {
	if lit, ok := ast.Unparen(call.Fun).(*ast.FuncLit); ok {
		return lit.Body
	}
	if fn, ok := p.callee(call).(*types.Func); ok && p.functions[fn] != nil {
		return p.functions[fn].Body
	}
	return nil
}

func (p *subsetPass) callee(call *ast.CallExpr) types.Object { return p.objectOf(call.Fun) }

// objectOf returns what a name or a selector stands for, nil for other expressions.
func (p *subsetPass) objectOf(e ast.Expr) types.Object {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		if def := p.info.Defs[e]; def != nil {
			return def
		}
		return p.info.Uses[e]
	case *ast.SelectorExpr:
		return p.info.Uses[e.Sel]
	}
	return nil
}

func isObject(obj types.Object, path, name string) bool {
	return obj != nil && obj.Pkg() != nil && obj.Pkg().Path() == path && obj.Name() == name
}

func isStdPath(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// isOwnType tells whether the type, or what it points to, is interpreted: declared here or in a vendored package.
func isOwnType(t types.Type) bool {
	if pointer, ok := t.(*types.Pointer); ok {
		t = pointer.Elem()
	}
	named, ok := t.(*types.Named)
	return ok && named.Obj().Pkg() != nil && !isStdPath(named.Obj().Pkg().Path())
}
