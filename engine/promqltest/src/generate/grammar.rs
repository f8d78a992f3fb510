//! Random queries from the rules of a grammar.
//!
//! A rule has a name and alternatives; `<name>` in an alternative refers to a rule. Up to the
//! maximum depth, any alternative is chosen, then only the shallowest.
//! Excludes results that are random in Prometheus: the rank of equal values, and the last digits
//! of sums that some functions magnify.

use std::collections::HashMap;

use crate::generate::function_rules::{FUNCTION_RULES, function_rules};
use crate::generate::native_rules::NATIVE_RULES;
use crate::generate::operand_rules::OPERAND_RULES;
use crate::generate::rules::RULES;
use crate::generate::{Operands, Query, Random};

/// Pieces that a mutation inserts.
const PIECES: [&str; 24] = [
    "(", ")", "[", "]", "{", "}", ",", ":", "=", "!", "\"", "'", "`", "\\", "@", "#", "\n", " by ",
    " on ", "offset", "-", "5m", "1e", "é",
];

/// Expands the rules.
#[derive(Debug)]
pub struct Grammar {
    random: Random,
    /// Alternatives by rule, each with its minimum depth.
    rules: HashMap<&'static str, Vec<(&'static str, u32)>>,
    depth_min: u32,
}

impl Grammar {
    /// Returns a generator for a seed.
    pub fn new(seed: u64, operands: Operands) -> Grammar {
        let listed = |rules: &[(&'static str, &[&'static str])]| -> Vec<_> {
            rules.iter().map(|(name, alternatives)| (*name, alternatives.to_vec())).collect()
        };
        let mut all: HashMap<&'static str, Vec<&'static str>> = function_rules().collect();
        all.extend(listed(RULES));
        all.extend(listed(OPERAND_RULES));
        if operands == Operands::Histograms {
            all.extend(listed(NATIVE_RULES));
        }
        let mut heights: HashMap<&'static str, u32> = HashMap::new();
        let height = |heights: &HashMap<&str, u32>, text: &str| {
            names(text)
                .map(|name| heights.get(name).copied())
                .try_fold(0, |max, height| height.map(|height: u32| max.max(height + 1)))
        };
        while heights.len() < all.len() {
            // From the heights of the pass before, so that the order of the map does not count.
            let found: Vec<(&'static str, u32)> = all
                .iter()
                .filter(|(name, _)| !heights.contains_key(*name))
                .filter_map(|(name, texts)| {
                    Some((*name, texts.iter().filter_map(|text| height(&heights, text)).min()?))
                })
                .collect();
            assert!(!found.is_empty(), "a rule never ends");
            heights.extend(found);
        }
        let rule = |alternatives: &[&'static str]| {
            let with_height = |text: &&'static str| Some((*text, height(&heights, text)?));
            alternatives.iter().filter_map(with_height).collect()
        };
        let rules = all.iter().map(|(name, alternatives)| (*name, rule(alternatives))).collect();
        // Deep expressions on histograms rarely have results.
        let depth_min = if operands == Operands::Histograms { 2 } else { 4 };
        Grammar { random: Random::new(seed), rules, depth_min }
    }

    /// Returns the random numbers.
    pub fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Generates the next query.
    pub fn query(&mut self) -> Query {
        let (start, is_ordered) = match self.random.below(32) {
            0 | 1 => ("ordered", true),
            2 | 3 => ("odd", false),
            4 => ("query", false),
            5 => ("scalar", false),
            6 => ("matrix", false),
            _ => ("vector", false),
        };
        let depth = self.depth_min + self.random.below(8) as u32;
        let mut text = String::new();
        self.expand(start, depth, &mut text);
        if self.random.one_in(16) {
            return Query { text: self.mutated(&text), is_ordered: false };
        }
        Query { text, is_ordered }
    }

    /// Returns the text with a piece removed, repeated or moved.
    fn mutated(&mut self, text: &str) -> String {
        let mut chars: Vec<char> = text.chars().collect();
        let at = self.random.below(chars.len() as u64 + 1) as usize;
        let end = (at + 1 + self.random.below(5) as usize).min(chars.len());
        let mut piece: Vec<char> = chars[at..end].to_vec();
        match self.random.below(4) {
            0 => piece.clear(),
            1 => piece = piece.repeat(2),
            2 => piece = self.random.pick(&PIECES).chars().collect(),
            _ => {
                let from = self.random.below(chars.len() as u64 + 1) as usize;
                piece.extend(chars[from..].iter().take(6));
            }
        }
        chars.splice(at..end, piece);
        chars.into_iter().collect()
    }

    fn expand(&mut self, rule: &str, depth: u32, out: &mut String) {
        let alternatives = &self.rules[rule];
        let least = alternatives.iter().map(|(_, height)| *height).min().unwrap_or(0);
        let open: Vec<&'static str> = alternatives
            .iter()
            .filter(|(_, height)| *height <= depth.max(least))
            .map(|(text, _)| *text)
            .collect();
        let mut rest: &'static str = self.random.pick(&open);
        while let Some((before, name, after)) = next_name(rest) {
            out.push_str(before);
            self.expand(name, depth.saturating_sub(1), out);
            rest = after;
        }
        out.push_str(rest);
    }
}

/// Splits an alternative at its first rule name: text before, name, text after.
fn next_name(text: &'static str) -> Option<(&'static str, &'static str, &'static str)> {
    let mut from = 0;
    loop {
        let start = from + text[from..].find('<')?;
        let end = start + text[start..].find('>')?;
        let name = &text[start + 1..end];
        if is_rule(name) {
            return Some((&text[..start], name, &text[end + 1..]));
        }
        from = start + 1;
    }
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split('<')
        .skip(1)
        .filter_map(|piece| piece.split_once('>'))
        .map(|(name, _)| name)
        .filter(|name| is_rule(name))
}

fn is_rule(name: &str) -> bool {
    RULES.iter().chain(OPERAND_RULES).chain(NATIVE_RULES).any(|(rule, _)| *rule == name)
        || FUNCTION_RULES.contains(&name)
}

#[cfg(test)]
mod tests {
    use engine::catalog::{FunctionId, all};
    use engine::parse::{ParseOptions, parse};

    use super::*;
    use crate::generate::{Category, Generator, parts};

    #[test]
    fn every_function_comes_up() {
        let mut broad = Generator::new(1, true, Operands::Floats);
        let mut grammar = Grammar::new(1, Operands::Floats);
        let mut seen: Vec<(Category, &str)> = Vec::new();
        for _ in 0..4_000 {
            seen.extend(parts(&broad.query().text));
            seen.extend(parts(&grammar.query().text));
        }
        for function in all().iter().filter(|function| function.id != FunctionId::StartTimestamp) {
            assert!(seen.contains(&(Category::Function, function.name)), "{}", function.name);
        }
    }

    #[test]
    fn most_queries_are_valid() {
        for operands in [Operands::Floats, Operands::Histograms] {
            let mut grammar = Grammar::new(2, operands);
            let is_valid = |text: &str| parse(text, &ParseOptions::ALL).is_ok();
            let valid = (0..1_000).filter(|_| is_valid(&grammar.query().text)).count();
            assert!((500..950).contains(&valid), "{operands:?}: {valid}");
        }
    }
}
