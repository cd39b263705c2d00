//! `#[job(...)]`: what it can say, and whether it makes sense.

use syn::punctuated::Punctuated;
use syn::{Attribute, Data, DeriveInput, Error, Expr, LitStr, Meta, Path, Result, Token};

use crate::backoff::Backoff;
use crate::nearest::known_words;
use crate::value;

const KNOWN: &[&str] = &[
    "kind",
    "alias",
    "aliases",
    "queue",
    "priority",
    "max_attempts",
    "timeout",
    "tags",
    "backoff",
    "crate",
];

const TAGS_MAX: usize = 32;
const TIMEOUT_MAX_MS: u64 = 30 * 86_400_000;

const KIND_MISSING: &str = "a job needs a kind: #[job(kind = \"email.send\")]. It is the name by which its rows are known in the \
     database. Jobs outlive deployments, so it is written down and not taken from the name of the type, which may change";

const NOT_ON_THE_TYPE: &str =
    "#[job(...)] describes the whole job: it goes on the type, not on a field or variant";

const CRATE_IS_NO_PATH: &str =
    "`crate` must be the path to the library, like \"::facade::rowlock\"";

/// What the attributes of one type say.
pub(crate) struct JobAttribute {
    pub(crate) kind: LitStr,
    pub(crate) aliases: Vec<LitStr>,
    pub(crate) options: Options,
    /// Where the library is.
    pub(crate) krate: Path,
}

/// The options of `JobOptions` that were given.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) queue: Option<LitStr>,
    pub(crate) priority: Option<i32>,
    pub(crate) max_attempts: Option<u16>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) tags: Option<Vec<LitStr>>,
    pub(crate) backoff: Option<Backoff>,
}

impl JobAttribute {
    /// Reads the attributes of a type. An error holds all that is wrong, not only the first.
    pub(crate) fn of(input: &DeriveInput) -> Result<Self> {
        let mut reader = Reader::default();
        let mut errors = Errors::default();
        for attribute in input.attrs.iter().filter(is_job) {
            match attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) {
                Ok(items) => items.iter().for_each(|item| errors.note(reader.read(item))),
                Err(error) => errors.push(Error::new(
                    error.span(),
                    format!(
                        "{error}; write it as in #[job(kind = \"email.send\", queue = \"mail\")]"
                    ),
                )),
            }
        }
        for attribute in inner_attributes(&input.data).filter(is_job) {
            errors.push(Error::new_spanned(attribute, NOT_ON_THE_TYPE));
        }
        errors.note(reader.check_names_differ());
        errors.finish()?;
        let kind = reader.kind.ok_or_else(|| {
            let attribute = input.attrs.iter().find(is_job);
            attribute.map_or_else(
                || Error::new_spanned(&input.ident, KIND_MISSING),
                |attribute| Error::new_spanned(attribute, KIND_MISSING),
            )
        })?;
        Ok(Self {
            kind,
            aliases: reader.aliases,
            options: reader.options,
            krate: reader.krate.unwrap_or_else(|| syn::parse_quote!(::rowlock)),
        })
    }
}

/// Collects what has been said so far.
#[derive(Default)]
struct Reader {
    kind: Option<LitStr>,
    aliases: Vec<LitStr>,
    options: Options,
    krate: Option<Path>,
}

impl Reader {
    fn read(&mut self, item: &Meta) -> Result<()> {
        let name = value::name_of(item);
        let options = &mut self.options;
        match name.as_str() {
            "kind" => value::once(&mut self.kind, item, a_name),
            "alias" => a_name(item).map(|alias| self.aliases.push(alias)),
            "aliases" => names(item, "alias").map(|aliases| self.aliases.extend(aliases)),
            "queue" => value::once(&mut options.queue, item, a_name),
            "priority" => value::once(&mut options.priority, item, |item| {
                value::integer("priority", value::value(item)?, -4..=4, "from -4 to 4")
            }),
            "max_attempts" => value::once(&mut options.max_attempts, item, |item| {
                let expr = value::value(item)?;
                let attempts = value::integer("max_attempts", expr, 1..=1000, "from 1 to 1000")?;
                // The range has just been checked.
                Ok(attempts as u16)
            }),
            "timeout" => value::once(&mut options.timeout_ms, item, |item| {
                let expr = value::value(item)?;
                value::duration_ms("timeout", expr, 1..=TIMEOUT_MAX_MS, "from 1 ms to 30 days")
            }),
            "tags" => value::once(&mut options.tags, item, tags),
            "backoff" => value::once(&mut options.backoff, item, Backoff::parse),
            "crate" => value::once(&mut self.krate, item, |item| {
                let path = value::text("crate", value::value(item)?)?;
                path.parse_with(Path::parse_mod_style)
                    .map_err(|_| Error::new_spanned(&path, CRATE_IS_NO_PATH))
            }),
            unknown => {
                let known = known_words(unknown, KNOWN);
                let message = format!("`{unknown}` is no attribute of a job; {known}");
                Err(Error::new_spanned(item.path(), message))
            }
        }
    }

    /// A former name that is the present one, or is said twice, is a slip of the pen.
    fn check_names_differ(&self) -> Result<()> {
        let mut names: Vec<String> = self.kind.iter().map(LitStr::value).collect();
        for alias in &self.aliases {
            let name = alias.value();
            if names.contains(&name) {
                let message = format!("the alias {name:?} is the kind itself, or is given twice");
                return Err(Error::new(alias.span(), message));
            }
            names.push(name);
        }
        Ok(())
    }
}

fn a_name(item: &Meta) -> Result<LitStr> {
    let what = value::name_of(item);
    let name = value::text(&what, value::value(item)?)?;
    value::check_name(&what, &name)?;
    Ok(name)
}

fn names(item: &Meta, what: &str) -> Result<Vec<LitStr>> {
    let name = |expr: &Expr| {
        let name = value::text(what, expr)?;
        value::check_name(what, &name)?;
        Ok(name)
    };
    value::values(item)?.iter().map(name).collect()
}

fn tags(item: &Meta) -> Result<Vec<LitStr>> {
    let tags = names(item, "tag")?;
    if tags.len() > TAGS_MAX {
        let message = format!(
            "`tags` has {} entries: at most {TAGS_MAX} are allowed",
            tags.len()
        );
        return Err(Error::new_spanned(item, message));
    }
    Ok(tags)
}

fn is_job(attribute: &&Attribute) -> bool {
    attribute.path().is_ident("job")
}

/// The attributes on fields and variants.
fn inner_attributes(data: &Data) -> impl Iterator<Item = &Attribute> {
    let (fields, variants) = match data {
        Data::Struct(data) => (Some(&data.fields), None),
        Data::Enum(data) => (None, Some(&data.variants)),
        Data::Union(_) => (None, None),
    };
    let of_variants = variants.into_iter().flatten().flat_map(|variant| {
        let of_fields = variant.fields.iter().flat_map(|field| &field.attrs);
        variant.attrs.iter().chain(of_fields)
    });
    fields
        .into_iter()
        .flatten()
        .flat_map(|field| &field.attrs)
        .chain(of_variants)
}

/// All that is wrong with one type.
#[derive(Default)]
struct Errors(Option<Error>);

impl Errors {
    fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(all) => all.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Keeps the error, if it is one.
    fn note(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.push(error);
        }
    }

    fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
