//! `backoff(...)`: a shape, and what changes it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::punctuated::Punctuated;
use syn::{Error, Meta, Path, Result, Token};

use crate::nearest::known_words;
use crate::value;

const YEAR_MS: u64 = 365 * 86_400_000;
const A_YEAR: &str = "from 0 to a year";
const DELAYS_MAX: usize = 100;

const KNOWN: &[&str] = &[
    "exponential",
    "linear",
    "fixed",
    "list",
    "factor",
    "max",
    "jitter",
];

const NOT_A_LIST: &str = "`backoff` takes a shape: `backoff(exponential = \"1s\", max = \"1h\")`, `backoff(linear = \"30s\")`, \
     `backoff(fixed = \"5s\")` or `backoff(list(\"1s\", \"5s\", \"1m\"))`";

const SHAPE_MISSING: &str = "a backoff needs a shape: `exponential = \"1s\"`, `linear = \"30s\"`, `fixed = \"5s\"` or \
     `list(\"1s\", \"5s\")`";

const SHAPE_TWICE: &str = "a backoff has one shape: `exponential`, `linear`, `fixed` or `list`";

/// A retry policy, as `rowlock::Backoff` has it.
pub(crate) struct Backoff {
    shape: Shape,
    max_ms: Option<u64>,
    jitter: Option<f64>,
}

enum Shape {
    Exponential { base_ms: u64, factor: Option<f64> },
    Linear { base_ms: u64 },
    Fixed { base_ms: u64 },
    List { delays_ms: Vec<u64> },
}

impl Backoff {
    pub(crate) fn parse(meta: &Meta) -> Result<Self> {
        let Meta::List(list) = meta else {
            return Err(Error::new_spanned(meta, NOT_A_LIST));
        };
        let (mut shape, mut factor, mut max_ms, mut jitter) = (None, None, None, None);
        for item in &list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)? {
            match value::name_of(item).as_str() {
                "exponential" | "linear" | "fixed" | "list" if shape.is_some() => {
                    return Err(Error::new_spanned(item, SHAPE_TWICE));
                }
                name @ ("exponential" | "linear" | "fixed" | "list") => {
                    shape = Some(Shape::parse(name, item)?);
                }
                "factor" => value::once(&mut factor, item, |item| {
                    let expr = value::value(item)?;
                    let by = value::number("factor", expr, 1.0..=100.0, "from 1 to 100")?;
                    Ok((by, item.clone()))
                })?,
                "max" => value::once(&mut max_ms, item, |item| {
                    value::duration_ms("max", value::value(item)?, 0..=YEAR_MS, A_YEAR)
                })?,
                "jitter" => value::once(&mut jitter, item, |item| {
                    value::number("jitter", value::value(item)?, 0.0..=1.0, "from 0 to 1")
                })?,
                unknown => {
                    let known = known_words(unknown, KNOWN);
                    let message = format!("`{unknown}` is no part of a backoff; {known}");
                    return Err(Error::new_spanned(item.path(), message));
                }
            }
        }
        let mut shape = shape.ok_or_else(|| Error::new_spanned(meta, SHAPE_MISSING))?;
        match (&mut shape, factor) {
            (Shape::Exponential { factor, .. }, Some((by, _))) => *factor = Some(by),
            (_, Some((_, item))) => {
                let message = "only an exponential backoff has a `factor`";
                return Err(Error::new_spanned(item, message));
            }
            (_, None) => {}
        }
        Ok(Self {
            shape,
            max_ms,
            jitter,
        })
    }

    /// An expression of type `Backoff`.
    pub(crate) fn expand(&self, krate: &Path) -> TokenStream {
        let base = match &self.shape {
            Shape::Exponential { base_ms, factor } => {
                let base = duration(*base_ms);
                let factor = factor.map(|factor| quote!(.factor(#factor)));
                quote!(exponential(#base) #factor)
            }
            Shape::Linear { base_ms } => {
                let base = duration(*base_ms);
                quote!(linear(#base))
            }
            Shape::Fixed { base_ms } => {
                let base = duration(*base_ms);
                quote!(fixed(#base))
            }
            Shape::List { delays_ms } => {
                let delays = delays_ms.iter().map(|ms| duration(*ms));
                quote!(list([#(#delays),*]))
            }
        };
        let max = self.max_ms.map(|ms| {
            let max = duration(ms);
            quote!(.max(#max))
        });
        let jitter = self.jitter.map(|share| quote!(.jitter(#share)));
        quote!(#krate::Backoff::#base #max #jitter)
    }
}

impl Shape {
    fn parse(name: &str, item: &Meta) -> Result<Self> {
        if name == "list" {
            let delays = value::values(item)?;
            if delays.len() > DELAYS_MAX {
                return Err(Error::new_spanned(
                    item,
                    format!(
                        "this list has {} delays: at most {DELAYS_MAX} are allowed",
                        delays.len()
                    ),
                ));
            }
            let delays_ms = delays
                .iter()
                .map(|delay| value::duration_ms(name, delay, 0..=YEAR_MS, A_YEAR))
                .collect::<Result<_>>()?;
            return Ok(Self::List { delays_ms });
        }
        let base_ms = value::duration_ms(name, value::value(item)?, 0..=YEAR_MS, A_YEAR)?;
        Ok(match name {
            "exponential" => Self::Exponential {
                base_ms,
                factor: None,
            },
            "linear" => Self::Linear { base_ms },
            _ => Self::Fixed { base_ms },
        })
    }
}

/// An expression of type `Duration`.
pub(crate) fn duration(ms: u64) -> TokenStream {
    quote!(::core::time::Duration::from_millis(#ms))
}
