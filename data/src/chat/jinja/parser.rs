//! Tokens of a template as a tree, no deeper than its evaluation can walk.

mod expressions;

use super::Error;
use super::ast::{Expr, Literal, Loop, MacroNode, Node, NodeKind, Target, Tree};
use super::lexer::{Token, tokens};

/// Expressions and statements within others at most. Python refuses 200 parentheses within others, which Jinja writes for operators.
const DEEPEST: usize = 200;
/// Operators, filters and calls of one tag at most: each may be within the next.
const LONGEST: usize = 1000;

/// Of both, what an ordinary stack holds.
const SHALLOW: usize = 64;

/// A template as a tree.
///
/// # Errors
/// Text that isn't a template's, and one with too much within each other.
pub(super) fn parse(source: &str) -> Result<Tree, Error> {
    let tokens = tokens(source)?;
    let mut parser =
        Parser { tokens, at: 0, depth: 0, operators: 0, tree: Tree::default(), reads: [false; 3] };
    parser.tree.nodes = parser.nodes(&[])?;
    Ok(parser.tree)
}

struct Parser {
    tokens: Vec<(Token, usize)>,
    at: usize,
    depth: usize,
    operators: usize,
    tree: Tree,
    /// `varargs`, `kwargs` and `caller`, of the macro that is read.
    reads: [bool; 3],
}

type Parsed<T> = Result<T, Error>;

impl Parser {
    fn error<T>(&self, message: impl Into<String>) -> Parsed<T> {
        Err(Error { message: message.into(), line: self.line() })
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(1, |(_, line)| *line)
    }

    fn token(&self) -> &Token {
        self.peek(0)
    }

    fn peek(&self, ahead: usize) -> &Token {
        self.tokens.get(self.at + ahead).map_or(&Token::End, |(token, _)| token)
    }

    fn next(&mut self) -> Token {
        let token = self.token().clone();
        self.at += 1;
        token
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.token(), Token::Symbol(own) if *own == symbol)
    }

    fn is_name(&self, name: &str) -> bool {
        matches!(self.token(), Token::Name(own) if own == name)
    }

    fn take(&mut self, symbol: &str) -> bool {
        let is = self.is(symbol);
        self.at += usize::from(is);
        is
    }

    fn take_name(&mut self, name: &str) -> bool {
        let is = self.is_name(name);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        match self.take(symbol) {
            true => Ok(()),
            false => self.error(format!("expected '{symbol}', got {}", shown(self.token()))),
        }
    }

    fn expect_end(&mut self) -> Parsed<()> {
        match self.next() {
            Token::BlockEnd => Ok(()),
            other => {
                self.at -= 1;
                self.error(format!("expected the end of a statement, got {}", shown(&other)))
            }
        }
    }

    fn name(&mut self) -> Parsed<String> {
        match self.next() {
            Token::Name(name) => Ok(name),
            other => {
                self.at -= 1;
                self.error(format!("expected a name, got {}", shown(&other)))
            }
        }
    }

    fn deeper(&mut self, by: usize) -> Parsed<()> {
        self.depth += by;
        self.tree.recurs |= self.depth > SHALLOW;
        match self.depth > DEEPEST {
            true => self.error(format!(
                "more than {DEEPEST} expressions or operators are within each other"
            )),
            false => Ok(()),
        }
    }

    /// Counts an operator, a filter or a call of the tag.
    fn longer(&mut self) -> Parsed<()> {
        self.operators += 1;
        self.tree.recurs |= self.operators > SHALLOW;
        match self.operators > LONGEST {
            true => {
                self.error(format!("a tag has more than {LONGEST} operators, filters and calls"))
            }
            false => Ok(()),
        }
    }

    /// Statements up to a tag that is named in `ends`, whose name is left to be taken.
    fn nodes(&mut self, ends: &[&str]) -> Parsed<Vec<Node>> {
        self.deeper(1)?;
        let mut nodes = Vec::new();
        loop {
            let line = self.line();
            self.operators = 0;
            let kind = match self.next() {
                Token::Text(text) => NodeKind::Text(text),
                Token::PrintBegin => {
                    let expr = self.tuple()?;
                    match self.next() {
                        Token::PrintEnd => NodeKind::Print(expr),
                        other => {
                            self.at -= 1;
                            return self.error(format!("expected '}}}}', got {}", shown(&other)));
                        }
                    }
                }
                Token::BlockBegin => {
                    if ends.iter().any(|end| self.is_name(end)) {
                        self.depth -= 1;
                        return Ok(nodes);
                    }
                    match self.statement()? {
                        Some(kind) => kind,
                        None => continue,
                    }
                }
                Token::End if ends.is_empty() => {
                    self.depth -= 1;
                    return Ok(nodes);
                }
                Token::End => {
                    return self.error(format!("the template ends before {}", ends.join(" or ")));
                }
                other => {
                    self.at -= 1;
                    return self.error(format!("unexpected {}", shown(&other)));
                }
            };
            nodes.push(Node { line, kind });
        }
    }

    /// A block's statements and its end tag, which is all of it.
    fn body(&mut self, end: &str) -> Parsed<Vec<Node>> {
        self.expect_end()?;
        let nodes = self.nodes(&[end])?;
        self.at += 1;
        Ok(nodes)
    }

    fn statement(&mut self) -> Parsed<Option<NodeKind>> {
        let name = self.name()?;
        let kind = match name.as_str() {
            "if" => self.if_statement()?,
            "for" => {
                let of = self.for_statement()?;
                self.tree.recurs |= of.recursive;
                self.tree.loops.push(of);
                NodeKind::For(self.tree.loops.len() - 1)
            }
            "set" => return self.set_statement().map(Some),
            "macro" => {
                let name = self.name()?;
                let of = self.macro_of(name, "endmacro")?;
                NodeKind::Macro(self.add(of))
            }
            "call" => return self.call_statement().map(Some),
            "filter" => {
                let filters = self.filters(None, true)?;
                NodeKind::FilterBlock(filters, self.body("endfilter")?)
            }
            "with" => {
                let mut targets = Vec::new();
                while !matches!(self.token(), Token::BlockEnd) {
                    if !targets.is_empty() {
                        self.expect(",")?;
                    }
                    let target = Target::Name(self.name()?);
                    self.expect("=")?;
                    targets.push((target, self.expression()?));
                }
                NodeKind::With(targets, self.body("endwith")?)
            }
            "generation" => {
                self.tree.marks = true;
                NodeKind::Generation(self.body("endgeneration")?)
            }
            "autoescape" => {
                if !matches!(self.expression()?, Expr::Literal(Literal::Bool(false))) {
                    return self.error("`autoescape` is supported with `false` alone");
                }
                NodeKind::Scoped(self.body("endautoescape")?)
            }
            "block" => {
                self.name()?;
                let body = self.body("endblock")?;
                if let Token::Name(_) = self.token() {
                    self.at += 1;
                }
                NodeKind::Scoped(body)
            }
            "break" => NodeKind::Break,
            "continue" => NodeKind::Continue,
            other => return self.error(format!("unknown tag '{other}'")),
        };
        self.expect_end()?;
        Ok(Some(kind))
    }

    fn if_statement(&mut self) -> Parsed<NodeKind> {
        let mut branches = Vec::new();
        loop {
            let condition = self.tuple_without_if()?;
            self.expect_end()?;
            branches.push((condition, self.nodes(&["elif", "else", "endif"])?));
            if self.take_name("elif") {
                continue;
            }
            let otherwise = match self.take_name("else") {
                true => {
                    self.expect_end()?;
                    self.nodes(&["endif"])?
                }
                false => Vec::new(),
            };
            self.at += 1;
            return Ok(NodeKind::If(branches, otherwise));
        }
    }

    fn for_statement(&mut self) -> Parsed<Loop> {
        let target = self.targets(false)?;
        if !self.take_name("in") {
            return self.error(format!("expected 'in', got {}", shown(self.token())));
        }
        let over = self.tuple_without_if()?;
        let filter = match self.take_name("if") {
            true => Some(self.expression()?),
            false => None,
        };
        let recursive = self.take_name("recursive");
        self.expect_end()?;
        let body = self.nodes(&["endfor", "else"])?;
        let otherwise = match self.take_name("else") {
            true => {
                self.expect_end()?;
                self.nodes(&["endfor"])?
            }
            false => Vec::new(),
        };
        self.at += 1;
        Ok(Loop { target, over, filter, recursive, body, otherwise })
    }

    fn set_statement(&mut self) -> Parsed<NodeKind> {
        let target = self.targets(true)?;
        if self.take("=") {
            let value = self.tuple()?;
            self.expect_end()?;
            return Ok(NodeKind::Set(target, value));
        }
        let filters = if self.is("|") { Some(self.filters(None, false)?) } else { None };
        let body = self.body("endset")?;
        self.expect_end()?;
        Ok(NodeKind::SetBlock(target, filters, body))
    }

    fn call_statement(&mut self) -> Parsed<NodeKind> {
        let parameters = match self.take("(") {
            true => self.parameters()?,
            false => Vec::new(),
        };
        let call = self.expression()?;
        if !matches!(call, Expr::Call(..)) {
            return self.error("a call block needs a call");
        }
        let body = self.body("endcall")?;
        self.expect_end()?;
        let reads = [false; 3];
        let block = MacroNode { name: "caller".to_owned(), parameters, body, reads };
        Ok(NodeKind::Call(call, self.add(block)))
    }

    fn add(&mut self, of: MacroNode) -> usize {
        self.tree.recurs = true;
        self.tree.macros.push(of);
        self.tree.macros.len() - 1
    }

    fn macro_of(&mut self, name: String, end: &str) -> Parsed<MacroNode> {
        self.expect("(")?;
        let parameters = self.parameters()?;
        let before = std::mem::take(&mut self.reads);
        let body = self.body(end)?;
        let reads = std::mem::replace(&mut self.reads, before);
        Ok(MacroNode { name, parameters, body, reads })
    }

    fn parameters(&mut self) -> Parsed<Vec<(String, Option<Expr>)>> {
        let mut parameters: Vec<(String, Option<Expr>)> = Vec::new();
        while !self.take(")") {
            if !parameters.is_empty() {
                self.expect(",")?;
                if self.take(")") {
                    break;
                }
            }
            let name = self.name()?;
            let usual = if self.take("=") { Some(self.expression()?) } else { None };
            if usual.is_none() && parameters.last().is_some_and(|(_, usual)| usual.is_some()) {
                return self.error("a parameter without a default follows one with a default");
            }
            parameters.push((name, usual));
        }
        Ok(parameters)
    }

    /// One target, or several with commas between them.
    fn targets(&mut self, attributes: bool) -> Parsed<Target> {
        let mut list = Vec::new();
        let mut several = false;
        loop {
            list.push(self.target(attributes)?);
            if !self.take(",") {
                break;
            }
            several = true;
            if self.is_name("in") || self.is("=") {
                break;
            }
        }
        match list.pop() {
            Some(one) if !several => Ok(one),
            last => {
                list.extend(last);
                Ok(Target::Tuple(list))
            }
        }
    }

    fn target(&mut self, attributes: bool) -> Parsed<Target> {
        if self.take("(") {
            self.deeper(1)?;
            let inner = self.targets(false)?;
            self.depth -= 1;
            self.expect(")")?;
            return Ok(match inner {
                Target::Tuple(list) => Target::Tuple(list),
                one => one,
            });
        }
        let name = self.name()?;
        if matches!(name.as_str(), "true" | "false" | "none" | "True" | "False" | "None") {
            return self.error(format!("can't assign to '{name}'"));
        }
        if attributes && self.take(".") {
            let attribute = self.name()?;
            if attribute.starts_with('_') {
                return self.error(format!(
                    "a namespace can't store '{attribute}', which begins with an underscore"
                ));
            }
            return Ok(Target::Attribute(name, attribute));
        }
        Ok(Target::Name(name))
    }
}

fn shown(token: &Token) -> String {
    match token {
        Token::Text(_) => "text".to_owned(),
        Token::PrintBegin => "'{{'".to_owned(),
        Token::PrintEnd => "'}}'".to_owned(),
        Token::BlockBegin => "'{%'".to_owned(),
        Token::BlockEnd => "'%}'".to_owned(),
        Token::Name(name) => format!("'{name:.40}'"),
        Token::Literal(Literal::Str(text)) => format!("the text {text:.40?}"),
        Token::Literal(_) => "a number".to_owned(),
        Token::Symbol(symbol) => format!("'{symbol}'"),
        Token::End => "the end of the template".to_owned(),
    }
}
