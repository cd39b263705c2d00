//! Values of attributes: literals, checked by the rules of the library and in its words.

use std::ops::RangeInclusive;

use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, ExprUnary, Lit, LitStr, Meta, Result, Token, UnOp};

use crate::duration;

/// Longest name of a queue, kind or tag, in bytes: the rule of the library and of the database.
const NAME_BYTES_MAX: usize = 200;

/// Fills a place that can be filled only once.
pub(crate) fn once<T>(
    place: &mut Option<T>,
    item: &Meta,
    parse: impl FnOnce(&Meta) -> Result<T>,
) -> Result<()> {
    if place.is_some() {
        let message = format!("`{}` is given twice", name_of(item));
        return Err(Error::new_spanned(item, message));
    }
    *place = Some(parse(item)?);
    Ok(())
}

/// The `value` of `name = value`.
pub(crate) fn value(meta: &Meta) -> Result<&Expr> {
    match meta {
        Meta::NameValue(pair) => Ok(ungrouped(&pair.value)),
        _ => {
            let name = name_of(meta);
            Err(Error::new_spanned(
                meta,
                format!("`{name}` takes one value: `{name} = ...`"),
            ))
        }
    }
}

/// The values of `name("a", "b")`, of which there is at least one.
pub(crate) fn values(meta: &Meta) -> Result<Vec<Expr>> {
    let name = name_of(meta);
    let wrong = || {
        let shape = format!("`{name}` takes a list of texts: `{name}(\"...\", \"...\")`");
        Error::new_spanned(meta, shape)
    };
    let Meta::List(list) = meta else {
        return Err(wrong());
    };
    let items = list
        .parse_args_with(Punctuated::<Expr, Token![,]>::parse_terminated)
        .map_err(|_| wrong())?;
    if items.is_empty() {
        return Err(wrong());
    }
    Ok(items
        .into_iter()
        .map(|item| ungrouped(&item).clone())
        .collect())
}

/// A string literal.
pub(crate) fn text(name: &str, expr: &Expr) -> Result<LitStr> {
    match expr {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => Ok(text.clone()),
        _ => Err(Error::new_spanned(
            expr,
            format!("`{name}` must be a text in quotes, since it is checked at compile time"),
        )),
    }
}

/// The name of a queue, kind or tag.
pub(crate) fn check_name(what: &str, text: &LitStr) -> Result<()> {
    let value = text.value();
    let broken = if value.is_empty() {
        "is empty: it needs 1 to 200 bytes".to_owned()
    } else if value.len() > NAME_BYTES_MAX {
        format!("has {} bytes: at most 200 are allowed", value.len())
    } else if value.chars().any(char::is_control) {
        "has a control character: only printable text is allowed".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(text.span(), format!("{what} {broken}")))
}

/// A duration in milliseconds, within a range that is named in words.
pub(crate) fn duration_ms(
    name: &str,
    expr: &Expr,
    range_ms: RangeInclusive<u64>,
    range: &str,
) -> Result<u64> {
    let text = text(name, expr)?;
    let ms = duration::parse_ms(&text.value()).map_err(|error| Error::new(text.span(), error))?;
    within(name, expr, ms, range_ms, range)
}

/// A whole number, which may have a minus sign.
pub(crate) fn integer(
    name: &str,
    expr: &Expr,
    range: RangeInclusive<i32>,
    range_in_words: &str,
) -> Result<i32> {
    let parsed = match signed(expr) {
        Some((sign, Lit::Int(int))) => int.base10_parse::<i32>().ok().map(|n| n * sign),
        _ => {
            return Err(Error::new_spanned(
                expr,
                format!("`{name}` must be a whole number {range_in_words}"),
            ));
        }
    };
    // What is too big for the type is also too big for the range.
    within(
        name,
        expr,
        parsed.unwrap_or(i32::MAX),
        range,
        range_in_words,
    )
}

/// A number, with or without a point.
pub(crate) fn number(
    name: &str,
    expr: &Expr,
    range: RangeInclusive<f64>,
    range_in_words: &str,
) -> Result<f64> {
    let parsed = match signed(expr) {
        Some((sign, Lit::Int(int))) => int.base10_parse().map(|n: f64| n * f64::from(sign)),
        Some((sign, Lit::Float(float))) => float.base10_parse().map(|n: f64| n * f64::from(sign)),
        _ => {
            return Err(Error::new_spanned(
                expr,
                format!("`{name}` must be a number {range_in_words}"),
            ));
        }
    }?;
    within(name, expr, parsed, range, range_in_words)
}

/// The name of an attribute as it was written.
pub(crate) fn name_of(meta: &Meta) -> String {
    let segments = meta.path().segments.iter();
    segments
        .map(|segment| segment.ident.to_string())
        .collect::<Vec<_>>()
        .join("::")
}

fn within<N: PartialOrd>(
    name: &str,
    expr: &Expr,
    value: N,
    range: RangeInclusive<N>,
    range_in_words: &str,
) -> Result<N> {
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(Error::new_spanned(
            expr,
            format!("`{name}` is out of range: it must be {range_in_words}"),
        ))
    }
}

/// A literal and its sign.
fn signed(expr: &Expr) -> Option<(i32, &Lit)> {
    match expr {
        Expr::Lit(ExprLit { lit, .. }) => Some((1, lit)),
        Expr::Unary(ExprUnary {
            op: UnOp::Neg(_),
            expr,
            ..
        }) => match ungrouped(expr) {
            Expr::Lit(ExprLit { lit, .. }) => Some((-1, lit)),
            _ => None,
        },
        _ => None,
    }
}

/// A literal that came through a `macro_rules!` variable is wrapped in a group that nobody sees.
fn ungrouped(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => ungrouped(&group.expr),
        _ => expr,
    }
}
