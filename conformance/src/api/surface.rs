//! The public items of our crate, read from its source: what `lib.rs` exports, and what those types are made of.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result, bail};
use syn::{Fields, ImplItem, Item, ItemMacro, TraitItem, Type, UseTree, Visibility};

/// Every item: `Type`, and `Type::member` for methods, fields and variants.
#[derive(Debug, Default)]
pub struct Surface(pub BTreeSet<String>);

impl Surface {
    /// Reads a crate; what it exports of another is read there.
    pub(super) fn read(own: &Path, other: &Path) -> Result<Self> {
        let root = parse(&own.join("src/lib.rs"))?;
        let mut exported = BTreeSet::new();
        for item in &root {
            if let Item::Use(item) = item
                && is_public(&item.vis)
            {
                leaves(&item.tree, &mut exported)?;
            }
        }
        let (own, other) = (files(&own.join("src"))?, files(&other.join("src"))?);
        let mut all = Self::default();
        for name in exported {
            let mut found = members(&own, &name)?;
            if found.is_empty() {
                found = members(&other, &name)?;
            }
            all.0.extend(found);
            all.0.insert(name);
        }
        Ok(all)
    }
}

fn parse(path: &Path) -> Result<Vec<Item>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    Ok(syn::parse_file(&text).with_context(|| path.display().to_string())?.items)
}

/// The items of all files of a folder but those of tests, file by file.
fn files(folder: &Path) -> Result<Vec<Vec<Item>>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.file_stem().is_some_and(|stem| stem == "tests") {
            continue;
        }
        if path.is_dir() {
            all.extend(files(&path)?);
        } else {
            all.push(parse(&path)?);
        }
    }
    Ok(all)
}

fn leaves(tree: &UseTree, names: &mut BTreeSet<String>) -> Result<()> {
    match tree {
        UseTree::Path(path) => leaves(&path.tree, names)?,
        UseTree::Name(name) => drop(names.insert(name.ident.to_string())),
        UseTree::Rename(rename) => drop(names.insert(rename.rename.to_string())),
        UseTree::Group(group) => group.items.iter().try_for_each(|tree| leaves(tree, names))?,
        UseTree::Glob(_) => bail!("an export of everything cannot be followed"),
    }
    Ok(())
}

/// A type and what it is made of; nothing if it is not defined here.
fn members(files: &[Vec<Item>], name: &str) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    let mut definitions = 0;
    for file in files {
        let defined = file.iter().find_map(|item| definition(item, name));
        // A file with a type of its own under that name means that one.
        let means_another = defined.as_ref().is_some_and(|(visibility, _)| !is_public(visibility));
        if means_another {
            continue;
        }
        if let Some((_, own)) = defined {
            definitions += 1;
            all.extend(own);
        }
        for item in file {
            if let Item::Impl(item) = item
                && item.trait_.is_none()
                && is_named(&item.self_ty, name)
            {
                all.extend(methods(&item.items, files)?);
            }
        }
    }
    match definitions {
        0 => Ok(BTreeSet::new()),
        1 => Ok(all.into_iter().map(|member| format!("{name}::{member}")).chain([name.to_owned()]).collect()),
        _ => bail!("{name} is defined {definitions} times: it is not known which is exported"),
    }
}

/// Whether an item defines a type, how far that is seen, and what it has in it.
fn definition<'i>(item: &'i Item, name: &str) -> Option<(&'i Visibility, Vec<String>)> {
    match item {
        Item::Struct(item) if item.ident == name => Some((&item.vis, fields(&item.fields))),
        Item::Enum(item) if item.ident == name => {
            Some((&item.vis, item.variants.iter().map(|variant| variant.ident.to_string()).collect()))
        }
        Item::Trait(item) if item.ident == name => {
            let functions = item.items.iter().filter_map(|item| match item {
                TraitItem::Fn(function) => Some(function.sig.ident.to_string()),
                _ => None,
            });
            Some((&item.vis, functions.collect()))
        }
        Item::Type(item) if item.ident == name => Some((&item.vis, Vec::new())),
        _ => None,
    }
}

fn fields(fields: &Fields) -> Vec<String> {
    let public = fields.iter().filter(|field| is_public(&field.vis));
    public.filter_map(|field| field.ident.as_ref()).map(ToString::to_string).collect()
}

/// Public methods and constants, those that a macro without arguments writes among them.
fn methods(items: &[ImplItem], files: &[Vec<Item>]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for item in items {
        match item {
            ImplItem::Fn(function) if is_public(&function.vis) => all.push(function.sig.ident.to_string()),
            ImplItem::Const(constant) if is_public(&constant.vis) => all.push(constant.ident.to_string()),
            ImplItem::Macro(call) => {
                let name = call.mac.path.get_ident().context("a macro in an impl has a plain name")?;
                let is_it = |item: &&ItemMacro| item.ident.as_ref() == Some(name);
                let definition = files.iter().flatten().filter_map(macro_item).find(is_it);
                let definition = definition.with_context(|| format!("{name}! is not here"))?;
                let written: Body = definition.mac.parse_body().with_context(|| format!("{name}!"))?;
                all.extend(methods(&written.0, files)?);
            }
            _ => {}
        }
    }
    Ok(all)
}

fn macro_item(item: &Item) -> Option<&ItemMacro> {
    match item {
        Item::Macro(item) => Some(item),
        _ => None,
    }
}

/// What stands in the one arm of a macro without arguments: `() => { … };`
struct Body(Vec<ImplItem>);

impl syn::parse::Parse for Body {
    fn parse(input: syn::parse::ParseStream<'_>) -> syn::Result<Self> {
        let (pattern, body);
        syn::parenthesized!(pattern in input);
        if !pattern.is_empty() {
            return Err(pattern.error("only a macro without arguments can be followed"));
        }
        input.parse::<syn::Token![=>]>()?;
        syn::braced!(body in input);
        let mut items = Vec::new();
        while !body.is_empty() {
            items.push(body.parse()?);
        }
        input.parse::<Option<syn::Token![;]>>()?;
        Ok(Self(items))
    }
}

fn is_named(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|segment| segment.ident == name))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}
