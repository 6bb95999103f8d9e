//! Expressions of templates.

use super::super::ast::{Args, Comparison, Expr, Literal, Operator};
use super::super::lexer::Token;
use super::{Parsed, Parser, shown};

impl Parser {
    /// An expression, or several with commas between them.
    pub(super) fn tuple(&mut self) -> Parsed<Expr> {
        let first = self.expression()?;
        self.tuple_from(first, Self::expression)
    }

    pub(super) fn tuple_without_if(&mut self) -> Parsed<Expr> {
        let first = self.or()?;
        let whole = self.tuple_from(first, Self::or)?;
        Ok(whole)
    }

    fn tuple_from(&mut self, first: Expr, item: fn(&mut Self) -> Parsed<Expr>) -> Parsed<Expr> {
        if !self.is(",") {
            return Ok(first);
        }
        let mut items = vec![first];
        while self.take(",") {
            let ends = matches!(self.token(), Token::PrintEnd | Token::BlockEnd | Token::End);
            if ends || self.is(")") || self.is("]") {
                break;
            }
            items.push(item(self)?);
        }
        Ok(Expr::Tuple(items))
    }

    pub(super) fn expression(&mut self) -> Parsed<Expr> {
        let before = self.depth;
        self.deeper(1)?;
        let mut expr = self.or()?;
        while self.take_name("if") {
            self.longer()?;
            let condition = self.or()?;
            let otherwise = match self.take_name("else") {
                true => Some(Box::new(self.expression()?)),
                false => None,
            };
            expr = Expr::If(Box::new([condition, expr]), otherwise);
        }
        self.depth = before;
        Ok(expr)
    }

    fn or(&mut self) -> Parsed<Expr> {
        let mut left = self.and()?;
        while self.take_name("or") {
            self.longer()?;
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Parsed<Expr> {
        let mut left = self.not()?;
        while self.take_name("and") {
            self.longer()?;
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Parsed<Expr> {
        if self.take_name("not") {
            self.deeper(1)?;
            let inner = self.not()?;
            self.depth -= 1;
            return Ok(Expr::Not(Box::new(inner)));
        }
        let left = self.sum()?;
        let mut compared = Vec::new();
        loop {
            let comparison = match self.token() {
                Token::Symbol("==") => Comparison::Equal,
                Token::Symbol("!=") => Comparison::NotEqual,
                Token::Symbol("<") => Comparison::Less,
                Token::Symbol("<=") => Comparison::LessEqual,
                Token::Symbol(">") => Comparison::Greater,
                Token::Symbol(">=") => Comparison::GreaterEqual,
                Token::Name(name) if name == "in" => Comparison::In,
                Token::Name(name) if name == "not" => {
                    if !matches!(self.peek(1), Token::Name(name) if name == "in") {
                        break;
                    }
                    self.at += 1;
                    Comparison::NotIn
                }
                _ => break,
            };
            self.at += 1;
            compared.push((comparison, self.sum()?));
        }
        Ok(if compared.is_empty() { left } else { Expr::Compare(Box::new(left), compared) })
    }

    fn chain(
        &mut self,
        symbols: &[(&str, Operator)],
        item: fn(&mut Self) -> Parsed<Expr>,
    ) -> Parsed<Expr> {
        let mut left = item(self)?;
        while let Some((_, operator)) = symbols.iter().find(|(symbol, _)| self.is(symbol)) {
            self.at += 1;
            self.longer()?;
            let right = item(self)?;
            left = Expr::Binary(Box::new(left), *operator, Box::new(right));
        }
        Ok(left)
    }

    fn sum(&mut self) -> Parsed<Expr> {
        self.chain(&[("+", Operator::Add), ("-", Operator::Subtract)], Self::concatenation)
    }

    fn concatenation(&mut self) -> Parsed<Expr> {
        self.chain(&[("~", Operator::Concatenate)], Self::term)
    }

    fn term(&mut self) -> Parsed<Expr> {
        let symbols = [
            ("*", Operator::Multiply),
            ("/", Operator::Divide),
            ("//", Operator::FloorDivide),
            ("%", Operator::Remainder),
        ];
        self.chain(&symbols, Self::power)
    }

    fn power(&mut self) -> Parsed<Expr> {
        self.chain(&[("**", Operator::Power)], |parser| parser.unary(true))
    }

    fn unary(&mut self, filtered: bool) -> Parsed<Expr> {
        self.deeper(1)?;
        let before = self.depth;
        let mut expr = if self.take("-") {
            Expr::Negative(Box::new(self.unary(false)?))
        } else if self.take("+") {
            Expr::Positive(Box::new(self.unary(false)?))
        } else {
            self.primary()?
        };
        expr = self.postfix(expr)?;
        if filtered {
            expr = self.filtered(expr)?;
        }
        self.depth = before - 1;
        Ok(expr)
    }

    fn primary(&mut self) -> Parsed<Expr> {
        Ok(match self.next() {
            Token::Name(name) => match name.as_str() {
                "true" | "True" => Expr::Literal(Literal::Bool(true)),
                "false" | "False" => Expr::Literal(Literal::Bool(false)),
                "none" | "None" => Expr::Literal(Literal::None),
                _ => {
                    for (at, read) in ["varargs", "kwargs", "caller"].into_iter().enumerate() {
                        self.reads[at] |= name == read;
                    }
                    Expr::Name(name)
                }
            },
            Token::Literal(Literal::Str(text)) => {
                let mut text = text.to_string();
                while let Token::Literal(Literal::Str(more)) = self.token() {
                    text += more;
                    self.at += 1;
                }
                Expr::Literal(Literal::Str(text.into()))
            }
            Token::Literal(literal) => Expr::Literal(literal),
            Token::Symbol("(") => {
                if self.take(")") {
                    return Ok(Expr::Tuple(Vec::new()));
                }
                let inner = self.tuple()?;
                self.expect(")")?;
                inner
            }
            Token::Symbol("[") => Expr::List(self.items("]")?),
            Token::Symbol("{") => {
                let mut entries = Vec::new();
                while !self.take("}") {
                    if !entries.is_empty() {
                        self.expect(",")?;
                        if self.take("}") {
                            break;
                        }
                    }
                    let key = self.expression()?;
                    self.expect(":")?;
                    entries.push((key, self.expression()?));
                }
                Expr::Dict(entries)
            }
            other => {
                self.at -= 1;
                return self.error(format!("unexpected {}", shown(&other)));
            }
        })
    }

    fn items(&mut self, end: &str) -> Parsed<Vec<Expr>> {
        let mut items = Vec::new();
        while !self.take(end) {
            if !items.is_empty() {
                self.expect(",")?;
                if self.take(end) {
                    break;
                }
            }
            items.push(self.expression()?);
        }
        Ok(items)
    }

    fn postfix(&mut self, mut expr: Expr) -> Parsed<Expr> {
        loop {
            if self.is(".") {
                self.at += 1;
                self.longer()?;
                expr = match self.next() {
                    Token::Name(name) => Expr::Attribute(Box::new(expr), name.into()),
                    Token::Literal(Literal::Int(index)) => {
                        Expr::Item(Box::new(expr), Box::new(Expr::Literal(Literal::Int(index))))
                    }
                    other => {
                        self.at -= 1;
                        return self.error(format!("expected a name, got {}", shown(&other)));
                    }
                };
            } else if self.take("[") {
                self.longer()?;
                expr = self.subscript(expr)?;
            } else if self.is("(") {
                self.longer()?;
                expr = Expr::Call(Box::new(expr), Box::new(self.args()?));
            } else {
                return Ok(expr);
            }
        }
    }

    fn subscript(&mut self, of: Expr) -> Parsed<Expr> {
        let mut parts: [Option<Expr>; 3] = [None, None, None];
        let mut colons = 0;
        loop {
            if self.take("]") {
                break;
            }
            if self.take(":") {
                colons += 1;
                if colons > 2 {
                    return self.error("a slice has more than two colons");
                }
                continue;
            }
            if parts[colons].is_some() {
                return self.error(format!("unexpected {}", shown(self.token())));
            }
            parts[colons] = Some(self.tuple()?);
        }
        match (colons, parts) {
            (0, [Some(index), ..]) => Ok(Expr::Item(Box::new(of), Box::new(index))),
            (0, _) => self.error("an index is missing"),
            (_, parts) => Ok(Expr::Slice(Box::new(of), Box::new(parts))),
        }
    }

    fn args(&mut self) -> Parsed<Args> {
        self.expect("(")?;
        let mut args = Args::default();
        let mut first = true;
        while !self.take(")") {
            if !std::mem::take(&mut first) {
                self.expect(",")?;
                if self.take(")") {
                    break;
                }
            }
            if self.take("**") {
                args.more[1] = Some(Box::new(self.expression()?));
            } else if self.take("*") {
                args.more[0] = Some(Box::new(self.expression()?));
            } else if let (Token::Name(name), Token::Symbol("=")) = (self.token(), self.peek(1)) {
                let name = name.clone();
                self.at += 2;
                args.named.push((name, self.expression()?));
            } else if args.named.is_empty() {
                args.list.push(self.expression()?);
            } else {
                return self.error("an argument without a name follows one with a name");
            }
        }
        Ok(args)
    }

    /// Filters, tests and calls behind an expression.
    fn filtered(&mut self, mut expr: Expr) -> Parsed<Expr> {
        loop {
            if self.is("|") {
                expr = self.filters(Some(expr), false)?;
            } else if self.take_name("is") {
                self.longer()?;
                expr = self.test(expr)?;
            } else if self.is("(") {
                self.longer()?;
                expr = Expr::Call(Box::new(expr), Box::new(self.args()?));
            } else {
                return Ok(expr);
            }
        }
    }

    pub(super) fn filters(&mut self, input: Option<Expr>, inline: bool) -> Parsed<Expr> {
        let mut expr = input;
        let mut first = inline;
        loop {
            if !std::mem::take(&mut first) && !self.take("|") {
                break;
            }
            self.longer()?;
            let name = self.dotted()?;
            let args = if self.is("(") { self.args()? } else { Args::default() };
            expr = Some(Expr::Filter(expr.map(Box::new), name, Box::new(args)));
        }
        match expr {
            Some(expr) => Ok(expr),
            None => self.error("a filter is missing"),
        }
    }

    fn dotted(&mut self) -> Parsed<String> {
        let mut name = self.name()?;
        while self.take(".") {
            name = format!("{name}.{}", self.name()?);
        }
        Ok(name)
    }

    fn test(&mut self, of: Expr) -> Parsed<Expr> {
        let negated = self.take_name("not");
        let name = self.dotted()?;
        let mut args = Args::default();
        if self.is("(") {
            args = self.args()?;
        } else {
            let reads = match self.token() {
                Token::Name(name) => !matches!(
                    name.as_str(),
                    "else" | "or" | "and" | "if" | "is" | "not" | "in" | "recursive"
                ),
                Token::Literal(_) => true,
                _ => self.is("(") || self.is("[") || self.is("{"),
            };
            if self.is_name("is") {
                return self.error("tests can't follow each other with 'is'");
            }
            if reads {
                let argument = self.primary()?;
                args.list.push(self.postfix(argument)?);
            }
        }
        Ok(Expr::Test(Box::new(of), name, Box::new(args), negated))
    }
}
