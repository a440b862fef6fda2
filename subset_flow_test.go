//go:build gc
// +build gc

package cart

import (
	"go/ast"
	"go/token"
	"go/types"
	"reflect"
)

// checkSelectExit refuses an unlabelled break that leaves a select, and, where they stand directly in one of its
// cases, a continue and a break to a label: there Yaegi leaves the select only.
func checkSelectExit(p *subsetPass) {
	p.each(func(n ast.Node, around []ast.Node) {
		branch, ok := n.(*ast.BranchStmt)
		if !ok || branch.Tok != token.BREAK && branch.Tok != token.CONTINUE {
			return
		}
		plain := branch.Tok == token.BREAK && branch.Label == nil
		_, direct := around[len(around)-1].(*ast.CommClause)
		if direct || plain && leavesSelect(around) {
			p.report(branch.Pos())
		}
	})
}

// leavesSelect tells whether a break at the end of these nodes belongs to a select.
func leavesSelect(around []ast.Node) bool {
	for i := len(around) - 1; i >= 0; i-- {
		switch around[i].(type) {
		case *ast.SelectStmt:
			return true
		case *ast.FuncLit, *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt:
			return false
		}
	}
	return false
}

func checkForReinit(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		loop, ok := n.(*ast.ForStmt)
		if !ok || loop.Post != nil {
			return
		}
		if init, ok := loop.Init.(*ast.AssignStmt); ok && len(init.Lhs) > 1 {
			p.report(loop.Pos())
		}
	})
}

// checkNilInTuple lets "a, b := f()" and returned nils pass: only assignments that list their values are concerned.
func checkNilInTuple(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		stmt, ok := n.(*ast.AssignStmt)
		if !ok || len(stmt.Rhs) < 2 {
			return
		}
		for _, right := range stmt.Rhs {
			if p.info.Types[right].IsNil() {
				p.report(stmt.Pos())
				return
			}
		}
	})
}

// checkUnnamedParams refuses functions and literals, but not types, whose parameters have no names.
func checkUnnamedParams(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		var kind *ast.FuncType
		switch n := n.(type) {
		case *ast.FuncDecl:
			kind = n.Type
		case *ast.FuncLit:
			kind = n.Type
		default:
			return
		}
		for _, field := range kind.Params.List {
			if len(field.Names) == 0 {
				p.report(n.Pos())
				return
			}
		}
	})
}

// checkSelect refuses every select outside of tests.
func checkSelect(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		if stmt, ok := n.(*ast.SelectStmt); ok && !p.inTest(stmt.Pos()) {
			p.report(stmt.Pos())
		}
	})
}

// checkCallInTuple refuses an assignment that lists its values when one of them is a call of this package's own function:
// with = the interpreter lets such a call overwrite its neighbours, or be overwritten. := is fine.
func checkCallInTuple(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		stmt, ok := n.(*ast.AssignStmt)
		if !ok || stmt.Tok != token.ASSIGN || len(stmt.Rhs) < 2 {
			return
		}
		for _, right := range stmt.Rhs {
			call, ok := ast.Unparen(right).(*ast.CallExpr)
			if !ok {
				continue
			}
			fn, isFunc := p.info.Uses[calledName(call)].(*types.Func)
			if isFunc && fn.Pkg() != nil && isStdPath(fn.Pkg().Path()) {
				continue
			}
			if isFunc || isFuncVariable(p, call) {
				p.report(stmt.Pos())
				return
			}
		}
	})
}

// calledName returns the identifier of the function that is called, or nil.
func calledName(call *ast.CallExpr) *ast.Ident {
	switch fun := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return fun
	case *ast.SelectorExpr:
		return fun.Sel
	}
	return nil
}

// isFuncVariable says whether what is called is a variable or literal, not a conversion or a builtin.
func isFuncVariable(p *subsetPass, call *ast.CallExpr) bool {
	if id := calledName(call); id != nil {
		_, isVar := p.info.Uses[id].(*types.Var)
		return isVar
	}
	_, isLiteral := ast.Unparen(call.Fun).(*ast.FuncLit)
	return isLiteral
}

// checkDeferClosure refuses the deferred call of a variable or field that got a literal in the same function, and of a
// literal in parentheses.
func checkDeferClosure(p *subsetPass) {
	p.each(func(n ast.Node, around []ast.Node) {
		stmt, ok := n.(*ast.DeferStmt)
		if !ok {
			return
		}
		if paren, ok := stmt.Call.Fun.(*ast.ParenExpr); ok {
			if _, ok := ast.Unparen(paren).(*ast.FuncLit); ok {
				p.report(stmt.Pos())
			}
		}
		if callee, ok := p.callee(stmt.Call).(*types.Var); ok && p.getsLiteral(callee, around[1]) {
			p.report(stmt.Pos())
		}
	})
}

// getsLiteral tells whether a func literal is assigned to the variable or field within the declaration.
func (p *subsetPass) getsLiteral(v *types.Var, decl ast.Node) bool {
	found := false
	pair := func(left, right ast.Expr) {
		_, isLit := ast.Unparen(right).(*ast.FuncLit)
		found = found || isLit && p.objectOf(left) == v
	}
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i := 0; i < len(n.Rhs) && len(n.Lhs) == len(n.Rhs); i++ {
				pair(n.Lhs[i], n.Rhs[i])
			}
		case *ast.ValueSpec:
			for i := 0; i < len(n.Values) && len(n.Names) == len(n.Values); i++ {
				pair(n.Names[i], n.Values[i])
			}
		case *ast.KeyValueExpr:
			pair(n.Key, n.Value)
		}
		return true
	})
	return found
}

// checkLateBinding refuses a defer or go statement whose receiver or arguments are variables that change after it or
// with the turns of a loop. Of go statements, only compiled functions read their arguments late.
func checkLateBinding(p *subsetPass) {
	p.each(func(n ast.Node, around []ast.Node) {
		var call *ast.CallExpr
		argsToo := true
		switch n := n.(type) {
		case *ast.DeferStmt:
			call = n.Call
		case *ast.GoStmt:
			call = n.Call
			fn, ok := p.callee(call).(*types.Func)
			argsToo = ok && fn.Pkg() != nil && isStdPath(fn.Pkg().Path())
		default:
			return
		}
		var read []ast.Expr
		if sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr); ok && p.info.Selections[sel] != nil {
			read = append(read, sel.X)
		}
		if argsToo {
			read = append(read, call.Args...)
		}
		for _, e := range read {
			if p.changes(e, n, around) {
				p.report(n.Pos())
				return
			}
		}
	})
}

// changes tells whether the expression is a variable, or a part of one, that can change after the statement.
func (p *subsetPass) changes(e ast.Expr, stmt ast.Node, around []ast.Node) bool {
	root := rootOf(e)
	if root == nil {
		return false
	}
	v, ok := p.info.Uses[root].(*types.Var)
	if !ok {
		return false
	}
	loops := loopsAround(around)
	for _, loop := range loops {
		if within(v.Pos(), loop) {
			return true
		}
	}
	if isResult(v, around) {
		return true
	}
	later := func(pos token.Pos) bool {
		for _, loop := range loops {
			if within(pos, loop) {
				return true
			}
		}
		return pos > stmt.End()
	}
	found := false
	ast.Inspect(around[1], func(n ast.Node) bool {
		for _, target := range assigned(n) {
			same := types.ExprString(target) == types.ExprString(e)
			if id, ok := target.(*ast.Ident); ok {
				same = p.info.Uses[id] == v
			}
			found = found || same && later(target.Pos())
		}
		return true
	})
	return found
}

// assigned returns what the statement sets.
func assigned(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		return n.Lhs
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		var set []ast.Expr
		for _, e := range []ast.Expr{n.Key, n.Value} {
			if e != nil {
				set = append(set, e)
			}
		}
		return set
	}
	return nil
}

// rootOf returns x for x, x.f, x[i] and *x.
func rootOf(e ast.Expr) *ast.Ident {
	switch e := ast.Unparen(e).(type) {
	case *ast.Ident:
		return e
	case *ast.SelectorExpr:
		return rootOf(e.X)
	case *ast.IndexExpr:
		return rootOf(e.X)
	case *ast.StarExpr:
		return rootOf(e.X)
	}
	return nil
}

// loopsAround returns the loops of the innermost function.
func loopsAround(around []ast.Node) []ast.Node {
	var loops []ast.Node
	for i := len(around) - 1; i >= 0; i-- {
		switch around[i].(type) {
		case *ast.FuncLit:
			return loops
		case *ast.ForStmt, *ast.RangeStmt:
			loops = append(loops, around[i])
		}
	}
	return loops
}

// isResult tells whether the variable is a named result of a function around: return sets it.
func isResult(v *types.Var, around []ast.Node) bool {
	for _, n := range around {
		var results *ast.FieldList
		switch n := n.(type) {
		case *ast.FuncDecl:
			results = n.Type.Results
		case *ast.FuncLit:
			results = n.Type.Results
		}
		if results != nil && within(v.Pos(), results) {
			return true
		}
	}
	return false
}

func within(pos token.Pos, n ast.Node) bool { return n.Pos() <= pos && pos < n.End() }

// checkLoopClosure refuses a literal in a loop that outlives its statement and captures a variable of the loop.
func checkLoopClosure(p *subsetPass) {
	p.each(func(n ast.Node, around []ast.Node) {
		lit, ok := n.(*ast.FuncLit)
		if !ok {
			return
		}
		for _, loop := range loopsAround(around) {
			if p.outlives(lit, loop, around) && p.captures(lit, loop) {
				p.report(lit.Pos())
				return
			}
		}
	})
}

func (p *subsetPass) captures(lit *ast.FuncLit, loop ast.Node) bool {
	found := false
	ast.Inspect(lit, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			v, ok := p.info.Uses[id].(*types.Var)
			found = found || ok && !v.IsField() && within(v.Pos(), loop) && !within(v.Pos(), lit)
		}
		return true
	})
	return found
}

// outlives tells whether the literal is kept or runs later: as a goroutine, in a structure, appended, sent. One that is
// only handed to a call is taken to run within it.
func (p *subsetPass) outlives(lit *ast.FuncLit, loop ast.Node, around []ast.Node) bool {
	var value ast.Expr = lit
	for i := len(around) - 1; i >= 0; i-- {
		switch parent := around[i].(type) {
		case *ast.ParenExpr:
			value = parent
		case *ast.CallExpr:
			if parent.Fun == value {
				switch around[i-1].(type) {
				case *ast.GoStmt, *ast.DeferStmt:
					return true
				}
				return false
			}
			if builtin, ok := p.callee(parent).(*types.Builtin); ok {
				return builtin.Name() == "append"
			}
			if !p.info.Types[parent.Fun].IsType() {
				return false
			}
			value = parent
		case *ast.AssignStmt:
			return p.keeps(parent, value, loop)
		case *ast.CompositeLit, *ast.KeyValueExpr, *ast.SendStmt:
			return true
		default:
			return false
		}
	}
	return false
}

// keeps tells whether the assignment puts the value elsewhere than into a variable of the loop.
func (p *subsetPass) keeps(stmt *ast.AssignStmt, value ast.Expr, loop ast.Node) bool {
	for i, right := range stmt.Rhs {
		if right == value && i < len(stmt.Lhs) {
			id, ok := stmt.Lhs[i].(*ast.Ident)
			return !ok || id.Name != "_" && !within(p.objectOf(id).Pos(), loop)
		}
	}
	return true
}

// checkResponseWriter leaves the tests' own recorders alone; embedding does not work there either.
func checkResponseWriter(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		switch n := n.(type) {
		case *ast.StructType:
			for _, field := range n.Fields.List {
				named, ok := p.info.TypeOf(field.Type).(*types.Named)
				if ok && field.Names == nil && isObject(named.Obj(), "net/http", "ResponseWriter") {
					p.report(field.Pos())
				}
			}
		case *ast.TypeSpec:
			obj := p.info.Defs[n.Name]
			if _, ok := n.Type.(*ast.InterfaceType); ok || p.inTest(n.Pos()) {
				return
			}
			methods := types.NewMethodSet(types.NewPointer(obj.Type()))
			all := true
			for _, name := range []string{"Header", "Write", "WriteHeader"} {
				all = all && methods.Lookup(obj.Pkg(), name) != nil
			}
			if all {
				p.report(n.Pos())
			}
		}
	})
}

// jsonArgument is which argument of the functions and methods of encoding/json is encoded or filled.
var jsonArgument = map[string]int{"Marshal": 0, "MarshalIndent": 0, "Unmarshal": 1, "Encode": 0, "Decode": 0}

func checkJSONTypes(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		fn, ok := p.callee(call).(*types.Func)
		if !ok || fn.Pkg() == nil || fn.Pkg().Path() != "encoding/json" {
			return
		}
		i, ok := jsonArgument[fn.Name()]
		if ok && !jsonSafe(p.info.TypeOf(call.Args[i]), true, map[types.Type]bool{}) {
			p.report(call.Pos())
		}
	})
}

func jsonSafe(t types.Type, top bool, seen map[types.Type]bool) bool {
	if seen[t] {
		return true
	}
	seen[t] = true
	switch t := t.(type) {
	case *types.Pointer:
		return jsonSafe(t.Elem(), top, seen)
	case *types.Slice:
		return jsonSafe(t.Elem(), false, seen)
	case *types.Array:
		return jsonSafe(t.Elem(), false, seen)
	case *types.Map:
		return jsonSafe(t.Elem(), false, seen)
	case *types.Named:
		if t.Obj().Pkg() == nil || t.Obj().Pkg().Path() != "github.com/cart-llm/cart" {
			return true
		}
		methods := types.NewMethodSet(types.NewPointer(t))
		custom := methods.Lookup(nil, "MarshalJSON") != nil || methods.Lookup(nil, "UnmarshalJSON") != nil
		return (top || !custom) && jsonSafe(t.Underlying(), false, seen)
	case *types.Struct:
		for i := 0; i < t.NumFields(); i++ {
			field := t.Field(i)
			if reflect.StructTag(t.Tag(i)).Get("json") == "-" {
				continue
			}
			if !field.Exported() || field.Embedded() || !jsonSafe(field.Type(), false, seen) {
				return false
			}
		}
	}
	return true
}

func checkShapeIdentity(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		switch n := n.(type) {
		case *ast.MapType:
			if isEmptyInterface(p.info.TypeOf(n.Key)) {
				p.report(n.Pos())
			}
		case *ast.CallExpr:
			if !isObject(p.callee(n), "context", "WithValue") {
				return
			}
			if key, ok := p.info.TypeOf(n.Args[1]).(*types.Named); ok && isOwnType(key) {
				p.report(n.Pos())
			}
		case *ast.TypeSwitchStmt:
			if isEmptyInterface(p.info.TypeOf(switchedOn(n))) && p.hasOwnCase(n) {
				p.report(n.Pos())
			}
		}
	})
}

func isEmptyInterface(t types.Type) bool {
	iface, ok := t.Underlying().(*types.Interface)
	return ok && iface.Empty()
}

func switchedOn(n *ast.TypeSwitchStmt) ast.Expr {
	var e ast.Expr
	switch s := n.Assign.(type) {
	case *ast.ExprStmt:
		e = s.X
	case *ast.AssignStmt:
		e = s.Rhs[0]
	}
	return e.(*ast.TypeAssertExpr).X
}

func (p *subsetPass) hasOwnCase(n *ast.TypeSwitchStmt) bool {
	for _, clause := range n.Body.List {
		for _, e := range clause.(*ast.CaseClause).List {
			t := p.info.TypeOf(e)
			if isOwnType(t) && !types.IsInterface(t) {
				return true
			}
		}
	}
	return false
}

func checkDurationFields(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		fields, ok := n.(*ast.StructType)
		if !ok {
			return
		}
		for _, field := range fields.Fields.List {
			named, ok := p.info.TypeOf(field.Type).(*types.Named)
			if ok && isObject(named.Obj(), "github.com/traefik/paerser/types", "Duration") {
				p.report(field.Pos())
			}
		}
	})
}

// checkStaleResults refuses a named result that is read before it is assigned, in the order of the source, and a bare
// return of one: it begins with what the caller's variable holds.
func checkStaleResults(p *subsetPass) {
	p.each(func(n ast.Node, _ []ast.Node) {
		var results *ast.FieldList
		var body *ast.BlockStmt
		switch fn := n.(type) {
		case *ast.FuncDecl:
			results, body = fn.Type.Results, fn.Body
		case *ast.FuncLit:
			results, body = fn.Type.Results, fn.Body
		}
		if results == nil || body == nil {
			return
		}
		for _, field := range results.List {
			for _, name := range field.Names {
				s := &staleResult{pass: p, result: p.info.Defs[name]}
				if name.Name != "_" {
					ast.Inspect(body, s.visit)
				}
			}
		}
	})
}

// staleResult follows one named result through the body of its function.
type staleResult struct {
	pass     *subsetPass
	result   types.Object
	assigned bool
}

func (s *staleResult) visit(n ast.Node) bool {
	if s.assigned {
		return false
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		plain := n.Tok == token.ASSIGN || n.Tok == token.DEFINE
		for _, right := range n.Rhs {
			ast.Inspect(right, s.visit)
		}
		for _, left := range n.Lhs {
			if plain && s.isResult(left) {
				s.assigned = true
			} else {
				ast.Inspect(left, s.visit)
			}
		}
		return false
	case *ast.ReturnStmt:
		if len(n.Results) == 0 {
			s.pass.report(n.Pos())
		}
	case *ast.Ident:
		if s.isResult(n) {
			s.pass.report(n.Pos())
		}
	}
	return true
}

func (s *staleResult) isResult(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && s.pass.info.Uses[id] == s.result
}
