//! `API.md`: the page that tells what answers to what.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Formatter},
};

use super::{Api, map::Place};
use crate::target::Target;

const INTRODUCTION: &str = "\
# API parity

Every member of the published TypeScript packages, and what answers to it in `agentvm-sdk`. Generated from the packages'
`.d.ts` files, from the source of the crate, and from `api/map.yaml`:

    cargo run -p agentvm-conformance --bin conformance-api

A member or an item that appears or vanishes fails the gate until it is placed. *current* is `@rivet-dev/agentos-core`
0.2.21, *classic* is `@rivet-dev/agent-os-core` 0.1.1. Types that the packages do not export but mention in what they do
count as theirs. A parameter that is an object written out is shown with its fields: `mkdir.options.recursive`.
";

/// The page.
#[derive(Debug)]
pub struct Page<'a>(pub &'a Api);

/// Members of one type that share a row: a place, and the packages that have them.
type Rows<'a> = BTreeMap<(Place<'a>, &'a BTreeSet<Target>), Vec<&'a str>>;

impl<'a> Page<'a> {
    /// By type: `AgentOs`, and all below it.
    fn types(&self) -> BTreeMap<&'a str, Rows<'a>> {
        let mut types: BTreeMap<_, Rows<'_>> = BTreeMap::new();
        for (member, targets, place) in self.0.places() {
            let name = member.split_once('.').map_or(member, |(name, _)| name);
            types.entry(name).or_default().entry((place, targets)).or_default().push(member);
        }
        types
    }

    fn write_sums(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "| package | members | answered | not yet | out of scope |\n|---|---|---|---|---|")?;
        for target in [Target::TsCurrent, Target::TsClassic] {
            let places: Vec<_> =
                self.0.places().filter(|(_, targets, _)| targets.contains(&target)).collect();
            let count = |is: fn(&Place<'_>) -> bool| places.iter().filter(|(_, _, place)| is(place)).count();
            let answered = count(|place| matches!(place, Place::Answered(_)));
            let not_yet = count(|place| matches!(place, Place::NotYet(_)));
            let out_of_scope = count(|place| matches!(place, Place::OutOfScope(_)));
            let package = short(target);
            writeln!(f, "| {package} | {} | {answered} | {not_yet} | {out_of_scope} |", places.len())?;
        }
        Ok(())
    }

    fn write_only_in_rust(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let answers = self.0.answers();
        let items: Vec<_> = self.0.surface.0.iter().filter(|item| !answers.contains(*item)).collect();
        writeln!(f, "\n## Only in Rust\n\n| item | what for |\n|---|---|")?;
        for group in &self.0.map.only_in_rust {
            let of_group = |item: &&&String| {
                self.0.map.only_in_rust(item).is_some_and(|found| std::ptr::eq(found, group))
            };
            let names: Vec<_> = items.iter().filter(of_group).map(|item| format!("`{item}`")).collect();
            writeln!(f, "| {} | {} |", names.join(", "), group.because)?;
        }
        Ok(())
    }
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{INTRODUCTION}")?;
        self.write_sums(f)?;
        let is_answered = |rows: &Rows<'_>| rows.keys().any(|(place, _)| matches!(place, Place::Answered(_)));
        let (answered, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.types().into_iter().partition(|(_, rows)| is_answered(rows));
        writeln!(f, "\n## Answered")?;
        for (name, rows) in &answered {
            writeln!(f, "\n### {name}\n\n| TypeScript | in | Rust |\n|---|---|---|")?;
            for ((place, targets), members) in rows {
                writeln!(f, "| {} | {} | {} |", listed(members, name), packages(targets), told(place))?;
            }
        }
        write_others(f, "Not yet", &others, |place| matches!(place, Place::NotYet(_)))?;
        write_others(f, "Out of scope", &others, |place| matches!(place, Place::OutOfScope(_)))?;
        self.write_only_in_rust(f)
    }
}

/// Types of which nothing is answered, by their place.
fn write_others(
    f: &mut Formatter<'_>,
    title: &str,
    types: &BTreeMap<&str, Rows<'_>>,
    is_wanted: fn(&Place<'_>) -> bool,
) -> fmt::Result {
    let mut places: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (name, rows) in types {
        for ((place, targets), members) in rows.iter().filter(|((place, _), _)| is_wanted(place)) {
            places.entry(place).or_default().push((name, targets, members));
        }
    }
    writeln!(f, "\n## {title}")?;
    for (place, rows) in places {
        writeln!(f, "\n**{}**\n\n| type | in | members |\n|---|---|---|", text(place))?;
        for (name, targets, members) in rows {
            writeln!(f, "| `{name}` | {} | {} |", packages(targets), listed(members, name))?;
        }
    }
    Ok(())
}

/// Members without the name of their type.
fn listed(members: &[&str], of: &str) -> String {
    let short =
        |member: &&str| member.strip_prefix(of).and_then(|rest| rest.strip_prefix('.')).map(str::to_owned);
    let names: Vec<_> = members
        .iter()
        .map(|member| format!("`{}`", short(member).unwrap_or_else(|| (*member).to_owned())))
        .collect();
    names.join(", ")
}

fn packages(targets: &BTreeSet<Target>) -> String {
    targets.iter().map(|target| short(*target)).collect::<Vec<_>>().join(", ")
}

fn short(target: Target) -> &'static str {
    target.name().trim_start_matches("ts-")
}

fn told(place: &Place<'_>) -> String {
    let text = text(place);
    match place {
        Place::Answered(_) => format!("`{text}`"),
        Place::NotYet(_) => format!("not yet: {text}"),
        Place::OutOfScope(_) => format!("out of scope: {text}"),
    }
}

fn text<'p>(place: &'p Place<'_>) -> &'p str {
    match place {
        Place::Answered(item) => item,
        Place::NotYet(text) | Place::OutOfScope(text) => text,
    }
}
