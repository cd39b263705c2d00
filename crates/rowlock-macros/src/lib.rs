//! The derive macro of Rowlock.
#[proc_macro_derive(Job, attributes(job))]
pub fn derive_job(_: proc_macro::TokenStream) -> proc_macro::TokenStream {
    proc_macro::TokenStream::new()
}
