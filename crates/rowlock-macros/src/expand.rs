//! The impl that is generated.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Generics, Path, Result, parse_quote};

use crate::attribute::{JobAttribute, Options};
use crate::backoff::duration;

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    check_shape(input)?;
    let JobAttribute {
        kind,
        aliases,
        options,
        krate,
    } = JobAttribute::of(input)?;
    let options = expand_options(&options, &krate);
    let name = &input.ident;
    let generics = bounded(&input.generics);
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #krate::Job for #name #type_generics #where_clause {
            const KIND: &'static str = #kind;
            const ALIASES: &'static [&'static str] = &[#(#aliases),*];
            #options
        }
    })
}

fn check_shape(input: &DeriveInput) -> Result<()> {
    if let Data::Union(union) = &input.data {
        return Err(Error::new(
            union.union_token.span,
            "a union cannot be a job: it does not serialise to a JSON object",
        ));
    }
    if let Some(lifetime) = input.generics.lifetimes().next() {
        let name = &lifetime.lifetime;
        return Err(Error::new(
            name.span(),
            format!(
                "a job is read back by another process, so it must own its data and cannot borrow for `{name}`: use `String` in place \
                 of `&{name} str`, `Vec<T>` in place of `&{name} [T]`"
            ),
        ));
    }
    Ok(())
}

/// What a type with parameters must be to be a job depends on the parameters: whoever uses it must show that it is.
fn bounded(generics: &Generics) -> Generics {
    let mut generics = generics.clone();
    if generics.type_params().next().is_some() {
        generics.make_where_clause().predicates.push(parse_quote! {
            Self: ::serde::Serialize + ::serde::de::DeserializeOwned + ::core::marker::Send + 'static
        });
    }
    generics
}

/// `fn options()`, unless the trait's own will do.
fn expand_options(options: &Options, krate: &Path) -> Option<TokenStream> {
    let Options {
        queue,
        priority,
        max_attempts,
        timeout_ms,
        tags,
        backoff,
    } = options;
    let some = |value: TokenStream| quote!(::core::option::Option::Some(#value));
    let fields: Vec<(&str, TokenStream)> = [
        queue
            .as_ref()
            .map(|queue| ("queue", some(quote!(::std::borrow::Cow::Borrowed(#queue))))),
        priority.map(|priority| ("priority", some(quote!(#priority)))),
        max_attempts.map(|attempts| ("max_attempts", some(quote!(#attempts)))),
        timeout_ms.map(|ms| ("timeout", some(duration(ms)))),
        backoff
            .as_ref()
            .map(|backoff| ("backoff", some(backoff.expand(krate)))),
        tags.as_ref().map(|tags| {
            let tags = quote!(::std::vec![#(::std::string::String::from(#tags)),*]);
            ("tags", tags)
        }),
    ]
    .into_iter()
    .flatten()
    .collect();
    if fields.is_empty() {
        return None;
    }
    let assignments = fields.iter().map(|(name, value)| {
        let name = syn::Ident::new(name, proc_macro2::Span::call_site());
        quote!(options.#name = #value;)
    });
    Some(quote! {
        fn options() -> #krate::JobOptions {
            let mut options = <#krate::JobOptions as ::core::default::Default>::default();
            #(#assignments)*
            options
        }
    })
}
