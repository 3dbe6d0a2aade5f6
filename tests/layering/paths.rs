//! Finds the paths in a source file.
//!
//! Files are read as token trees rather than as items: a path inside a macro's arguments counts like any other, and only
//! what stands under `#[cfg(test)]` is left out. A path is followed through `crate`, `self`, `super` and groups up to the
//! item that it reaches.

use std::collections::BTreeSet;

use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{Ident, Token, braced, bracketed, parenthesized, token};

/// Crates that a pure module may not use, nor any crate whose name starts with one of these and `_`.
const IMPURE_CRATES: &[&str] = &["tokio", "hyper", "tracing", "opentelemetry"];

/// Crates with one home or two, and where: an inflater is fed by strangers, and `decode` holds the bounds for that.
const HOMES: &[(&str, &[&str])] = &[
    ("brotli_decompressor", &["decode"]),
    ("flate2", &["count", "decode", "export", "report"]),
    ("zstd_safe", &["decode"]),
];

/// What the paths in a file reach.
#[derive(Default)]
pub struct Paths {
    /// Where the reader stands: the file's module and the inline modules that are open.
    pub module: Vec<String>,
    /// In this crate, by module and item (`clock::Moment`); `*` for a glob of its root.
    pub inside: BTreeSet<String>,
    /// Impure crates, and the functions that read the clock.
    pub outside: BTreeSet<String>,
    /// Crates that have their home in another module.
    pub strayed: BTreeSet<String>,
    /// Modules in files of their own that are compiled for tests only.
    pub test_modules: Vec<Vec<String>>,
}

impl Paths {
    pub fn read(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        while !input.is_empty() {
            if input.peek(Token![#]) {
                self.attribute(input)?;
            } else if input.peek(Ident::peek_any) {
                let word = Ident::parse_any(input)?;
                self.word(&word, input)?;
            } else {
                self.other(input)?;
            }
        }
        Ok(())
    }

    fn attribute(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        input.parse::<Token![#]>()?;
        input.parse::<Option<Token![!]>>()?;
        if !input.peek(token::Bracket) {
            return Ok(());
        }
        let content;
        bracketed!(content in input);
        if is_cfg_test(&content.fork()).unwrap_or(false) {
            skip(&content)?;
            return self.skip_item(input);
        }
        self.read(&content)
    }

    fn word(&mut self, word: &Ident, input: ParseStream<'_>) -> syn::Result<()> {
        if word == "use" {
            input.parse::<Option<Token![::]>>()?;
            return self.follow(Reached::Nothing, input);
        }
        if word == "extern" && input.peek(Token![crate]) {
            input.parse::<Token![crate]>()?;
            return self.follow(Reached::Nothing, input);
        }
        if word == "mod" && input.peek2(token::Brace) {
            self.module.push(Ident::parse_any(input)?.to_string());
            self.other(input)?;
            self.module.pop();
            return Ok(());
        }
        if input.peek(Token![::]) {
            let reached = self.step(Reached::Nothing, word);
            return self.onwards(reached, input);
        }
        Ok(())
    }

    /// Follows one branch of a path: a word and what comes after it, a group, or a glob.
    fn follow(&mut self, reached: Reached, input: ParseStream<'_>) -> syn::Result<()> {
        if input.peek(Ident::peek_any) {
            let word = Ident::parse_any(input)?;
            let reached = self.step(reached, &word);
            return self.onwards(reached, input);
        }
        if input.peek(token::Brace) {
            let branches;
            braced!(branches in input);
            while !branches.is_empty() {
                branches.parse::<Option<Token![::]>>()?;
                self.follow(reached.clone(), &branches)?;
                while !branches.is_empty() && !branches.peek(Token![,]) {
                    skip_one(&branches)?;
                }
                branches.parse::<Option<Token![,]>>()?;
            }
            return Ok(());
        }
        if let Reached::Inside(mut path) = reached {
            path.extend(input.peek(Token![*]).then(|| "*".to_owned()));
            self.reach(&path);
        }
        Ok(())
    }

    fn onwards(&mut self, reached: Reached, input: ParseStream<'_>) -> syn::Result<()> {
        if input.peek(Token![::]) {
            input.parse::<Token![::]>()?;
            return self.follow(reached, input);
        }
        if let Reached::Inside(path) = reached {
            self.reach(&path);
        }
        Ok(())
    }

    /// A path into this crate ends here. Its module and item are what counts.
    fn reach(&mut self, path: &[String]) {
        if !path.is_empty() {
            self.inside.insert(path[..path.len().min(2)].join("::"));
        }
    }

    /// One word further along a path. Takes note of what must not be reached from the pure part.
    fn step(&mut self, reached: Reached, word: &Ident) -> Reached {
        let word = word.to_string();
        let next = match (reached, word.as_str()) {
            (Reached::Nothing, "crate") => Reached::Inside(Vec::new()),
            (Reached::Nothing, "self") => Reached::Inside(self.module.clone()),
            (Reached::Nothing, "super") => Reached::Inside(parent(&self.module)),
            (Reached::Inside(path), "super") => Reached::Inside(parent(&path)),
            (Reached::Inside(path), "self") => Reached::Inside(path),
            (Reached::Inside(mut path), _) => {
                path.push(word);
                Reached::Inside(path)
            }
            (Reached::Nothing, _) => Reached::Outside(vec![word]),
            (Reached::Outside(mut path), _) => {
                path.push(word);
                Reached::Outside(path)
            }
        };
        if let Reached::Outside(path) = &next
            && IMPURE_CRATES.iter().any(|name| is_of(name, &path[0]))
        {
            self.outside.insert(path[0].clone());
        }
        if let Reached::Outside(path) = &next
            && let Some((name, homes)) = HOMES.iter().find(|(name, _)| *name == path[0])
            && !homes.iter().any(|home| self.module.first().is_some_and(|own| own == home))
        {
            self.strayed.insert((*name).to_owned());
        }
        if let Reached::Inside(path) | Reached::Outside(path) = &next
            && let [.., module, function] = path.as_slice()
            && module == "clock"
            && (function == "now" || function == "wall_now")
        {
            self.outside.insert(format!("clock::{function}"));
        }
        next
    }

    /// A group, whose inside is read like the rest, or a single token that means nothing here.
    fn other(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        let content;
        if input.peek(token::Brace) {
            braced!(content in input);
        } else if input.peek(token::Paren) {
            parenthesized!(content in input);
        } else if input.peek(token::Bracket) {
            bracketed!(content in input);
        } else {
            return skip_one(input);
        }
        self.read(&content)
    }

    /// Passes over what stands under `#[cfg(test)]`: an item, a statement, a field or a variant.
    fn skip_item(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        while input.peek(Token![#]) {
            input.parse::<Token![#]>()?;
            skip_one(input)?;
        }
        let ends_with_block = loop {
            if !input.peek(Ident::peek_any) {
                break None;
            }
            let word = Ident::parse_any(input)?;
            if input.peek(token::Paren) && word == "pub" {
                skip_one(input)?;
            }
            match word.to_string().as_str() {
                "pub" | "async" | "unsafe" => {}
                "const" if input.peek(Token![fn]) => {}
                "use" | "const" | "static" | "type" | "let" | "extern" => break Some(false),
                "mod" => {
                    if input.peek2(Token![;]) {
                        let mut path = self.module.clone();
                        path.push(input.fork().call(Ident::parse_any)?.to_string());
                        self.test_modules.push(path);
                    }
                    break Some(true);
                }
                "fn" | "impl" | "struct" | "enum" | "trait" | "union" | "macro_rules" => {
                    break Some(true);
                }
                _ => break None,
            }
        };
        while !input.is_empty() {
            let ends = input.peek(Token![;])
                || (ends_with_block == Some(true) && input.peek(token::Brace))
                || (ends_with_block.is_none() && input.peek(Token![,]));
            skip_one(input)?;
            if ends {
                break;
            }
        }
        Ok(())
    }
}

/// How far a path has been followed.
#[derive(Clone)]
enum Reached {
    Nothing,
    /// In this crate, from its root.
    Inside(Vec<String>),
    /// In another crate, or under a name that was brought in before.
    Outside(Vec<String>),
}

fn parent(module: &[String]) -> Vec<String> {
    module[..module.len().saturating_sub(1)].to_vec()
}

fn is_of(family: &str, name: &str) -> bool {
    name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
}

fn is_cfg_test(attribute: ParseStream<'_>) -> syn::Result<bool> {
    let is_cfg = attribute.call(Ident::parse_any)? == "cfg";
    let condition;
    parenthesized!(condition in attribute);
    Ok(is_cfg && condition.call(Ident::parse_any)? == "test" && condition.is_empty())
}

fn skip(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() {
        skip_one(input)?;
    }
    Ok(())
}

fn skip_one(input: ParseStream<'_>) -> syn::Result<()> {
    input.step(|cursor| match cursor.token_tree() {
        Some((_, rest)) => Ok(((), rest)),
        None => Err(cursor.error("a token was expected")),
    })
}
