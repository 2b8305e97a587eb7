//! Which Rust item answers to which TypeScript member.
//!
//! A place counts for a member and for everything below it that has none of its own. What lies below a member that a
//! Rust item answers to is answered by the item of the same name in snake case below that one.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Api, surface::Surface};
use crate::target::Target;

/// Kept by hand.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Map {
    /// The Rust item of a member, where it does not follow from the names.
    pub answered: BTreeMap<String, String>,
    /// Members whose time has not come.
    pub not_yet: Vec<NotYet>,
    /// Members that will have no counterpart.
    pub out_of_scope: Vec<OutOfScope>,
    /// Rust items that answer to nothing.
    pub only_in_rust: Vec<OnlyInRust>,
}

/// Members that a step brings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotYet {
    /// Which.
    pub step: String,
    /// By name.
    pub members: Vec<String>,
}

/// Members that something else replaces.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutOfScope {
    /// What there is in their place, or why nothing has to be.
    pub instead: String,
    /// By name.
    pub members: Vec<String>,
}

/// Items that go beyond the published SDKs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnlyInRust {
    /// What they are for.
    pub because: String,
    /// By name.
    pub items: Vec<String>,
}

/// The place of a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place<'a> {
    /// This Rust item answers to it.
    Answered(String),
    /// This step brings it.
    NotYet(&'a str),
    /// This is in its place.
    OutOfScope(&'a str),
}

impl Map {
    /// The place of a member, if it has one.
    pub fn place(&self, member: &str, surface: &Surface) -> Option<Place<'_>> {
        if let Some(place) = self.own_place(member) {
            return Some(place);
        }
        let (above, name) = member.rsplit_once('.')?;
        match self.place(above, surface)? {
            Place::Answered(item) => {
                let below = format!("{item}::{}", snake_case(name));
                surface.0.contains(&below).then_some(Place::Answered(below))
            }
            place => Some(place),
        }
    }

    fn own_place(&self, member: &str) -> Option<Place<'_>> {
        let is_among = |members: &[String]| members.iter().any(|name| name == member);
        let answered = self.answered.get(member).map(|item| Place::Answered(item.clone()));
        let not_yet = || self.not_yet.iter().find(|group| is_among(&group.members));
        let out_of_scope = || self.out_of_scope.iter().find(|group| is_among(&group.members));
        answered
            .or_else(|| Some(Place::NotYet(&not_yet()?.step)))
            .or_else(|| Some(Place::OutOfScope(&out_of_scope()?.instead)))
    }

    /// The members it names.
    fn named(&self) -> impl Iterator<Item = &String> {
        let not_yet = self.not_yet.iter().flat_map(|group| &group.members);
        let out_of_scope = self.out_of_scope.iter().flat_map(|group| &group.members);
        self.answered.keys().chain(not_yet).chain(out_of_scope)
    }

    /// The group of an item that answers to nothing.
    pub(super) fn only_in_rust(&self, item: &str) -> Option<&OnlyInRust> {
        self.only_in_rust.iter().find(|group| group.items.iter().any(|name| covers(name, item)))
    }
}

/// Whether a name in the list of what is only in Rust stands for an item: `Type` for itself and all it is made of,
/// `Type::*` for the latter alone.
fn covers(name: &str, item: &str) -> bool {
    let is_below = |of: &str| item.strip_prefix(of).is_some_and(|rest| rest.starts_with("::"));
    match name.strip_suffix("::*") {
        Some(of) => is_below(of),
        None => item == name || is_below(name),
    }
}

impl Api {
    /// The place of every member that has one, and the packages that have the member.
    pub(super) fn places(&self) -> impl Iterator<Item = (&str, &BTreeSet<Target>, Place<'_>)> {
        let place = |(member, targets)| {
            Some((String::as_str(member), targets, self.map.place(member, &self.surface)?))
        };
        self.members.0.iter().filter_map(place)
    }

    /// The items that answer to a member.
    pub(super) fn answers(&self) -> BTreeSet<String> {
        let item = |(_, _, place)| match place {
            Place::Answered(item) => Some(item),
            _ => None,
        };
        self.places().filter_map(item).collect()
    }

    /// What is not in its place; nothing if both sides are told of to the last member.
    pub fn complaints(&self) -> Vec<String> {
        let Self { members, surface, map } = self;
        let mut wrong = Vec::new();
        for member in members.0.keys().filter(|member| map.place(member, surface).is_none()) {
            wrong.push(format!("{member} of the published SDKs has no place in map.yaml"));
        }
        let mut named = BTreeSet::new();
        for name in map.named() {
            if !members.0.contains_key(name) {
                wrong.push(format!("{name} has a place in map.yaml, but no published SDK has it"));
            }
            if !named.insert(name) {
                wrong.push(format!("{name} has two places in map.yaml"));
            }
        }
        let answers = self.answers();
        for item in answers.difference(&surface.0) {
            wrong.push(format!("{item} is to answer to a member, but our crate has no such item"));
        }
        let unanswered = |item: &&String| !answers.contains(*item);
        for item in surface.0.iter().filter(unanswered).filter(|item| map.only_in_rust(item).is_none()) {
            wrong.push(format!("{item} of our crate has no place in map.yaml"));
        }
        for name in map.only_in_rust.iter().flat_map(|group| &group.items) {
            if !surface.0.iter().filter(unanswered).any(|item| covers(name, item)) {
                wrong.push(format!("{name} is only in Rust by map.yaml, but stands for nothing there"));
            }
            if answers.contains(name) {
                wrong.push(format!("{name} is only in Rust by map.yaml, but answers to a member"));
            }
        }
        wrong
    }
}

/// `onProcessExit` → `on_process_exit`
fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
