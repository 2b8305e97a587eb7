//! SPDX licence expressions, as in `(MIT OR Apache-2.0) AND Unicode-3.0`.
//!
//! ```text
//! either  = both  { ("OR" | "/") both }      "/" is what old manifests write for OR
//! both    = term  { "AND" term }
//! term    = "(" either ")" | licence [ "WITH" exception ]
//! ```

#[cfg(test)]
mod tests;

use std::iter::Peekable;

use anyhow::{Context, Result, bail};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expression {
    /// A licence, with its exception if it has one.
    Licence(String),
    /// Any of these may be chosen.
    Either(Vec<Expression>),
    /// All of these hold.
    Both(Vec<Expression>),
}

impl Expression {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let mut words = spaced.split_whitespace().peekable();
        let expression = either(&mut words).and_then(|expression| match words.next() {
            None => Ok(expression),
            Some(word) => bail!("{word} is one word too many"),
        });
        expression.with_context(|| format!("`{text}` is no licence expression"))
    }

    /// Whether it can be met with licences of this list alone.
    pub(super) fn is_met_by(&self, allowed: &[&str]) -> bool {
        match self {
            Self::Licence(name) => allowed.contains(&name.as_str()),
            Self::Either(parts) => parts.iter().any(|part| part.is_met_by(allowed)),
            Self::Both(parts) => parts.iter().all(|part| part.is_met_by(allowed)),
        }
    }
}

fn either<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>) -> Result<Expression> {
    let mut parts = vec![both(words)?];
    while words.next_if_eq(&"OR").is_some() {
        parts.push(both(words)?);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Either(parts) })
}

fn both<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>) -> Result<Expression> {
    let mut parts = vec![term(words)?];
    while words.next_if_eq(&"AND").is_some() {
        parts.push(term(words)?);
    }
    Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Both(parts) })
}

fn term<'a>(words: &mut Peekable<impl Iterator<Item = &'a str>>) -> Result<Expression> {
    if words.next_if_eq(&"(").is_some() {
        let inner = either(words)?;
        words.next_if_eq(&")").context("a bracket is not closed")?;
        return Ok(inner);
    }
    let name = licence(words)?;
    if words.next_if_eq(&"WITH").is_some() {
        return Ok(Expression::Licence(format!("{name} WITH {}", licence(words)?)));
    }
    Ok(Expression::Licence(name.to_owned()))
}

/// The name of a licence or an exception.
fn licence<'a>(words: &mut impl Iterator<Item = &'a str>) -> Result<&'a str> {
    match words.next() {
        None => bail!("a licence is missing at the end"),
        Some(word @ ("(" | ")" | "AND" | "OR" | "WITH")) => bail!("{word} stands where a licence should"),
        Some(word) => Ok(word),
    }
}
