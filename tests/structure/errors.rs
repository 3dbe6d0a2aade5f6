//! An error prints its own level only: its causes are printed by who prints the whole chain.

use std::path::Path;

use syn::{Attribute, Expr, ExprLit, Field, Fields, Item, Lit, Meta};

/// Returns each error of a file whose message contains its source, which would then be printed twice.
pub fn printed_sources(path: &Path, text: &str) -> Vec<String> {
    let file = syn::parse_file(text).unwrap();
    let mut found = Vec::new();
    for item in &file.items {
        if let Item::Enum(item) = item {
            let printing =
                item.variants.iter().filter(|it| prints_its_source(&it.attrs, &it.fields));
            let name = |variant: &syn::Variant| {
                format!("{}: {}::{}", path.display(), item.ident, variant.ident)
            };
            found.extend(printing.map(name));
        }
        if let Item::Struct(item) = item
            && prints_its_source(&item.attrs, &item.fields)
        {
            found.push(format!("{}: {}", path.display(), item.ident));
        }
    }
    found
}

fn prints_its_source(attributes: &[Attribute], fields: &Fields) -> bool {
    let Some(message) = attributes.iter().find_map(message) else { return false };
    fields.iter().enumerate().filter(|(_, field)| is_source(field)).any(|(index, field)| {
        let name = field.ident.as_ref().map_or_else(|| index.to_string(), ToString::to_string);
        message.contains(&format!("{{{name}}}")) || message.contains(&format!("{{{name}:"))
    })
}

/// Returns the text of an attribute `#[error("…")]`.
fn message(attribute: &Attribute) -> Option<String> {
    let Meta::List(list) = &attribute.meta else { return None };
    let arguments = syn::punctuated::Punctuated::<Expr, syn::Token![,]>::parse_terminated;
    let arguments = list.parse_args_with(arguments).ok().filter(|_| list.path.is_ident("error"))?;
    let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = arguments.first()? else { return None };
    Some(text.value())
}

fn is_source(field: &Field) -> bool {
    let has = |name: &str| field.attrs.iter().any(|attribute| attribute.path().is_ident(name));
    has("source") || has("from") || field.ident.as_ref().is_some_and(|name| name == "source")
}

#[test]
fn a_printed_source_is_found() {
    let text = r#"
        enum Error {
            #[error("cannot read {0}: {1}")]
            Read(String, #[source] io::Error),
            #[error("cannot read {0}")]
            Good(String, #[source] io::Error),
            #[error("{0}; write a number")]
            WithAdvice(ParseIntError),
            #[error(transparent)]
            Other(#[from] Error),
        }
        #[error("{path}: {source}", path = path.display())]
        struct Named { path: PathBuf, source: io::Error }
    "#;
    assert_eq!(printed_sources(Path::new("a.rs"), text), ["a.rs: Error::Read", "a.rs: Named"]);
}
