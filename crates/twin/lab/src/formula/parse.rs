//! Recursive-descent parser for formulas, lowest precedence first.

use super::FormulaError;
use super::lex::{Token, tokens};
use super::tree::{At, Claimed, Function, Join, Tree, X};

/// Parses a numeric formula.
pub fn parse_number(formula: &str) -> Result<Tree, FormulaError> {
    read(formula, |parser| parser.sum())
}

/// Parses a claim.
pub fn parse_claim(formula: &str) -> Result<Claimed, FormulaError> {
    read(formula, |parser| {
        let tree = parser.either()?;
        let at = parser.at()?;
        Ok(Claimed { tree, at })
    })
}

/// Parses a measured figure with its places.
pub fn parse_measured(formula: &str) -> Result<Claimed, FormulaError> {
    read(formula, |parser| {
        let tree = parser.sum()?;
        let at = parser.at()?;
        Ok(Claimed { tree, at })
    })
}

fn read<T>(formula: &str, with: impl FnOnce(&mut Parser) -> Result<T, String>) -> Result<T, FormulaError> {
    let failed = |why| FormulaError { formula: formula.to_owned(), why };
    let mut parser = Parser { tokens: tokens(formula).map_err(failed)?, next: 0 };
    let failed = |why| FormulaError { formula: formula.to_owned(), why };
    let read = with(&mut parser).map_err(failed)?;
    match parser.peek() {
        None => Ok(read),
        Some(token) => Err(FormulaError {
            formula: formula.to_owned(),
            why: format!("unexpected {token:?} after the end"),
        }),
    }
}

struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn take(&mut self) -> Result<Token, String> {
        let token = self.peek().cloned().ok_or("unexpected end")?;
        self.next += 1;
        Ok(token)
    }

    fn takes_sign(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Operator(is)) if *is == sign);
        self.next += usize::from(found);
        found
    }

    fn takes_name(&mut self, name: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Name(is)) if is == name);
        self.next += usize::from(found);
        found
    }

    fn needs_sign(&mut self, sign: &str) -> Result<(), String> {
        if self.takes_sign(sign) { Ok(()) } else { Err(format!("`{sign}` is missing")) }
    }

    fn either(&mut self) -> Result<Tree, String> {
        let mut tree = self.both()?;
        while self.takes_name("or") {
            tree = joined(tree, Join::Or, self.both()?);
        }
        Ok(tree)
    }

    fn both(&mut self) -> Result<Tree, String> {
        let mut tree = self.negation()?;
        while self.takes_name("and") {
            tree = joined(tree, Join::And, self.negation()?);
        }
        Ok(tree)
    }

    fn negation(&mut self) -> Result<Tree, String> {
        if self.takes_name("not") {
            return Ok(Tree::Not(Box::new(self.negation()?)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Tree, String> {
        let left = self.sum()?;
        for join in [Join::LessOrEqual, Join::MoreOrEqual, Join::Equal, Join::Less, Join::More] {
            if self.takes_sign(join.sign()) {
                return Ok(joined(left, join, self.sum()?));
            }
        }
        Ok(left)
    }

    fn sum(&mut self) -> Result<Tree, String> {
        let mut tree = self.product()?;
        loop {
            if self.takes_sign("+") {
                tree = joined(tree, Join::Add, self.product()?);
            } else if self.takes_sign("-") {
                tree = joined(tree, Join::Sub, self.product()?);
            } else {
                return Ok(tree);
            }
        }
    }

    fn product(&mut self) -> Result<Tree, String> {
        let mut tree = self.factor()?;
        loop {
            if self.takes_sign("*") {
                tree = joined(tree, Join::Mul, self.factor()?);
            } else if self.takes_sign("/") {
                tree = joined(tree, Join::Div, self.factor()?);
            } else {
                return Ok(tree);
            }
        }
    }

    fn factor(&mut self) -> Result<Tree, String> {
        if self.takes_sign("-") {
            return Ok(Tree::Negative(Box::new(self.factor()?)));
        }
        if self.takes_sign("(") {
            let tree = self.either()?;
            self.needs_sign(")")?;
            return Ok(tree);
        }
        match self.take()? {
            Token::Number(number) => Ok(Tree::Number(number)),
            Token::Quoted(series) => {
                let at = if self.takes_sign("[") {
                    let at = self.x()?;
                    self.needs_sign("]")?;
                    Some(at)
                } else {
                    None
                };
                Ok(Tree::Series(series, at))
            }
            Token::Name(name) if self.takes_sign("(") => self.call(&name),
            Token::Name(name) => Ok(Tree::Parameter(name)),
            Token::Operator(sign) => Err(format!("expected a value instead of `{sign}`")),
        }
    }

    fn call(&mut self, name: &str) -> Result<Tree, String> {
        let (function, arity) = match name {
            "published" => (Function::Published, 1),
            "published_ratio" => (Function::PublishedRatio, 1),
            "mean" => (Function::Mean, 1),
            "least" => (Function::Least, 1),
            "most" => (Function::Most, 1),
            "below" => (Function::Below, 2),
            "min" => (Function::Min, 2),
            "max" => (Function::Max, 2),
            "floor" => (Function::Floor, 1),
            "ceil" => (Function::Ceil, 1),
            "abs" => (Function::Abs, 1),
            _ => return Err(format!("there is no function `{name}`")),
        };
        let mut arguments = vec![self.sum()?];
        while self.takes_sign(",") {
            arguments.push(self.sum()?);
        }
        self.needs_sign(")")?;
        if arguments.len() != arity {
            return Err(format!("`{name}` takes {arity} argument(s), not {}", arguments.len()));
        }
        let of_series = matches!(function, Function::Published | Function::PublishedRatio | Function::Below);
        if of_series && !matches!(arguments[0], Tree::Series(..)) {
            return Err(format!("`{name}` takes a series"));
        }
        Ok(Tree::Call(function, arguments))
    }

    fn at(&mut self) -> Result<At, String> {
        if !self.takes_name("at") {
            return Ok(At::Once);
        }
        if self.takes_name("each") {
            return Ok(At::Each);
        }
        let mut these = vec![self.x()?];
        while self.takes_sign(",") {
            these.push(self.x()?);
        }
        Ok(At::These(these))
    }

    fn x(&mut self) -> Result<X, String> {
        match self.take()? {
            Token::Number(number) => Ok(X::Number(number)),
            Token::Quoted(name) => Ok(X::Name(name)),
            token => Err(format!("{token:?} is not a place on the x axis")),
        }
    }
}

fn joined(left: Tree, join: Join, right: Tree) -> Tree {
    Tree::Joined(Box::new(left), join, Box::new(right))
}
