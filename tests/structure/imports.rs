//! Finds out which files of a package import which other files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use syn::visit::{self, Visit};

/// One file of a package, without its tests.
pub struct Module {
    /// Path from the repository's root.
    pub file: String,
    pub lines_before_tests: usize,
    /// Path of the module: `[]` for `lib.rs`, `["count", "table"]` for `count/table.rs`.
    path: Vec<String>,
    /// Absolute paths inside the package that the file mentions.
    mentions: BTreeSet<Vec<String>>,
    /// Names that the file re-exports, with the path of each.
    reexports: BTreeMap<String, Vec<String>>,
    /// First segments of paths to other crates.
    crates: BTreeSet<String>,
    reads_clock: bool,
}

impl Module {
    /// Reads every module below `src` of the package in `folder`, except modules that exist only for tests.
    pub fn read_package(root: &Path, folder: &str) -> Vec<Self> {
        let mut modules = Vec::new();
        let source = root.join(folder).join("src");
        for entry in ["lib.rs", "main.rs"] {
            if source.join(entry).exists() {
                read(root, &source.join(entry), &source, Vec::new(), &mut modules);
            }
        }
        modules
    }

    pub fn reads_the_clock(&self) -> bool {
        self.reads_clock
    }

    pub fn names_crate(&self, name: &str) -> bool {
        self.crates.contains(name)
    }
}

/// Returns the groups of files that import each other in a cycle. An import between a module and its ancestor does not
/// count.
pub fn cycles(modules: &[Module]) -> Vec<Vec<String>> {
    let by_path: BTreeMap<&[String], usize> =
        modules.iter().enumerate().map(|(i, it)| (it.path.as_slice(), i)).collect();
    let edges: Vec<BTreeSet<usize>> =
        modules.iter().map(|module| imports(module, modules, &by_path)).collect();
    let mut found = Vec::new();
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    for start in 0..modules.len() {
        if seen.contains(&start) {
            continue;
        }
        let cycle: BTreeSet<usize> = reachable(start, &edges)
            .into_iter()
            .filter(|&it| reachable(it, &edges).contains(&start))
            .collect();
        if cycle.len() > 1 {
            seen.extend(&cycle);
            found.push(
                cycle.iter().filter_map(|&it| modules.get(it)).map(|it| it.file.clone()).collect(),
            );
        }
    }
    found
}

fn reachable(start: usize, edges: &[BTreeSet<usize>]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut open = vec![start];
    while let Some(next) = open.pop() {
        for &target in edges.get(next).into_iter().flatten() {
            if found.insert(target) {
                open.push(target);
            }
        }
    }
    found
}

/// Returns the other files that a file imports. An import of a re-exported item counts as an import of the file that
/// defines it.
fn imports(
    module: &Module,
    modules: &[Module],
    by_path: &BTreeMap<&[String], usize>,
) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for mention in &module.mentions {
        let mut path = mention.clone();
        // Chains of re-exports are short. The limit only prevents an endless loop.
        for _ in 0..8 {
            let Some((index, rest)) = resolve(&path, by_path) else { break };
            let Some(target) = modules.get(index) else { break };
            match rest.first().and_then(|name| target.reexports.get(name)) {
                Some(next) if *next != path => {
                    path = next.iter().cloned().chain(rest.into_iter().skip(1)).collect()
                }
                _ => {
                    let related = target.path.starts_with(&module.path)
                        || module.path.starts_with(&target.path);
                    if !related {
                        found.insert(index);
                    }
                    break;
                }
            }
        }
    }
    found
}

/// Splits a path into the longest module that exists and the rest.
fn resolve(path: &[String], by_path: &BTreeMap<&[String], usize>) -> Option<(usize, Vec<String>)> {
    (0..=path.len()).rev().find_map(|length| {
        let (module, rest) = path.split_at(length);
        Some((*by_path.get(module)?, rest.to_vec()))
    })
}

fn read(root: &Path, file: &Path, folder: &Path, path: Vec<String>, modules: &mut Vec<Module>) {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let syntax =
        syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let lines: Vec<&str> = text.lines().collect();
    let lines_before_tests = lines
        .windows(2)
        .position(|pair| matches!(pair, ["#[cfg(test)]", next] if next.starts_with("mod ")))
        .unwrap_or(lines.len());
    let mut reader = Reader { at: path.clone(), ..Reader::default() };
    reader.visit_file(&syntax);
    for name in &reader.children {
        let mut child = path.clone();
        child.push(name.clone());
        let inner = folder.join(name);
        let flat = folder.join(format!("{name}.rs"));
        let file = if flat.exists() { flat } else { inner.join("mod.rs") };
        read(root, &file, &inner, child, modules);
    }
    modules.push(Module {
        file: file
            .strip_prefix(root)
            .unwrap()
            .display()
            .to_string()
            .trim_start_matches("./")
            .to_owned(),
        lines_before_tests,
        path,
        mentions: reader.mentions,
        reexports: reader.reexports,
        crates: reader.crates,
        reads_clock: reader.reads_clock,
    });
}

/// Collects the paths of one file.
#[derive(Default)]
struct Reader {
    /// Path of the module that is being read. Inline modules extend it.
    at: Vec<String>,
    children: Vec<String>,
    mentions: BTreeSet<Vec<String>>,
    reexports: BTreeMap<String, Vec<String>>,
    crates: BTreeSet<String>,
    reads_clock: bool,
}

impl Reader {
    fn mention(&mut self, path: &[String]) {
        if path.windows(2).any(|it| matches!(it, [module, call] if module == "clock" && (call == "now" || call == "wall_now"))) {
            self.reads_clock = true;
        }
        match self.absolute(path) {
            Some(path) => {
                self.mentions.insert(path);
            }
            None => self.crates.extend(path.first().cloned()),
        }
    }

    /// Resolves a path that begins with `crate`, `self`, `super` or a child of the current module.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let mut at = self.at.clone();
        let mut rest = path.iter().peekable();
        match rest.peek()?.as_str() {
            "crate" | "$crate" => {
                at.clear();
                rest.next();
            }
            "self" => {
                rest.next();
            }
            "super" => {
                while rest.next_if(|it| *it == "super").is_some() {
                    at.pop();
                }
            }
            child if self.children.iter().any(|it| it == child) => {}
            _ => return None,
        }
        at.extend(rest.cloned());
        Some(at)
    }

    fn use_tree(&mut self, tree: &syn::UseTree, prefix: &mut Vec<String>, public: bool) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.use_tree(&path.tree, prefix, public);
                prefix.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(tree, prefix, public);
                }
            }
            syn::UseTree::Glob(_) => self.mention(&prefix.clone()),
            syn::UseTree::Name(name) => self.import(prefix, &name.ident.to_string(), None, public),
            syn::UseTree::Rename(rename) => {
                self.import(
                    prefix,
                    &rename.ident.to_string(),
                    Some(rename.rename.to_string()),
                    public,
                );
            }
        }
    }

    fn import(&mut self, prefix: &[String], name: &str, renamed: Option<String>, public: bool) {
        let mut path = prefix.to_vec();
        if name != "self" {
            path.push(name.to_owned());
        }
        self.mention(&path);
        if let (true, Some(absolute)) = (public, self.absolute(&path)) {
            self.reexports.insert(renamed.unwrap_or_else(|| name.to_owned()), absolute);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if attributes(item).iter().any(is_for_tests) {
            return;
        }
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        if item.content.is_none() {
            self.children.push(name);
            return;
        }
        self.at.push(name);
        visit::visit_item_mod(self, item);
        self.at.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        self.use_tree(&item.tree, &mut Vec::new(), public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        if segments.len() > 1 {
            self.mention(&segments);
        }
        visit::visit_path(self, path);
    }
}

fn is_for_tests(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("cfg") && list.tokens.to_string() == "test"
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(it) => &it.attrs,
        syn::Item::Enum(it) => &it.attrs,
        syn::Item::Fn(it) => &it.attrs,
        syn::Item::Impl(it) => &it.attrs,
        syn::Item::Macro(it) => &it.attrs,
        syn::Item::Mod(it) => &it.attrs,
        syn::Item::Static(it) => &it.attrs,
        syn::Item::Struct(it) => &it.attrs,
        syn::Item::Trait(it) => &it.attrs,
        syn::Item::Type(it) => &it.attrs,
        syn::Item::Use(it) => &it.attrs,
        syn::Item::ExternCrate(_)
        | syn::Item::ForeignMod(_)
        | syn::Item::TraitAlias(_)
        | syn::Item::Union(_)
        | syn::Item::Verbatim(_)
        | _ => &[],
    }
}
