//! Import cycles between the modules of a crate, counted in the sources.
//!
//! A module is a top-level entry of a crate's `src`; it imports another one where its code names
//! `crate::other`, a `super::` path that leads there, or a name that `lib.rs` re-exports from
//! there. Code under `#[cfg(test)]` does not count. The text is read as tokens, not expanded: paths
//! that macros build are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Crates with the maximum number of their modules that may be in import cycles.
const CRATES: [(&str, usize); 7] = [
    ("storage/src", 0),
    ("storage/model/src", 0),
    ("engine/src", 0),
    ("src", 0),
    ("wire/src", 0),
    ("formats/src", 0),
    ("json/src", 0),
];

#[test]
fn modules_in_import_cycles_stay_few() {
    let mut failures = String::new();
    for (folder, modules_max) in CRATES {
        let sources = Sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder));
        let cycles = sources.cycles();
        let found: usize = cycles.iter().map(BTreeSet::len).sum();
        if found > modules_max {
            let of = sources.modules.len();
            writeln!(
                failures,
                "{folder}: {found} of {of} modules in cycles, maximum {modules_max}"
            )
            .unwrap();
            cycles.iter().for_each(|cycle| failures.push_str(&sources.describe(cycle)));
        }
    }
    assert!(failures.is_empty(), "\n{failures}Break the cycles: dependencies point down.");
}

#[test]
fn paths_in_test_code_do_not_count() {
    let text = r##"
        use crate::{a::A, b::{self, c::C}, d as e};
        // crate::comment /* crate::comment */
        const TEXT: &str = "crate::text"; const RAW: &str = r#"crate::"raw"#; const C: char = '"';
        fn life<'a>(x: &'a str) -> crate::f::F { super::g::h(x) }
        #[cfg(test)] use crate::test_use;
        #[cfg(test)] mod tests { use crate::test_module::{A, B}; }
        #[cfg(test)] #[allow(dead_code)] fn check<A, B>() where A: B { crate::test_function() }
        struct S { #[cfg(test)] pub(crate) field: crate::test_field::F, other: crate::i::I }
        mod below; #[cfg(test)] mod testing;
    "##;
    let tokens = without_tests(&tokens(text));
    let here = ["top".to_owned(), "file".to_owned()];
    let paths: Vec<String> =
        paths(&tokens, &here).into_iter().map(|(path, _)| path.join("::")).collect();
    assert_eq!(paths, ["a::A", "b", "b::c::C", "d", "f::F", "top::g::h", "i::I"]);
    assert_eq!(declared_modules(&tokens), ["below"]);
}

/// A mention of a module in another one.
struct Mention {
    file: PathBuf,
    line: usize,
    text: String,
}

/// The modules of a crate and what each one imports.
struct Sources {
    root: PathBuf,
    modules: BTreeSet<String>,
    /// Modules by name in `lib.rs`, for what it re-exports.
    exported: BTreeMap<String, String>,
    imports: BTreeMap<(String, String), Vec<Mention>>,
}

impl Sources {
    fn read(root: &Path) -> Self {
        let tokens = read_tokens(&root.join("lib.rs"));
        let modules = declared_modules(&tokens).into_iter().collect();
        let mut sources = Sources {
            root: root.to_owned(),
            modules,
            exported: BTreeMap::new(),
            imports: BTreeMap::new(),
        };
        for at in (0..tokens.len()).filter(|at| is_text(&tokens, *at, "use")) {
            for (path, _) in use_tree(&tokens, &mut (at + 1), &[]) {
                if path.len() > 1 && sources.modules.contains(&path[0]) {
                    sources.exported.insert(path[path.len() - 1].clone(), path[0].clone());
                }
            }
        }
        for module in sources.modules.clone() {
            sources.read_module(root, &[module]);
        }
        sources
    }

    /// Reads the file of a module, then those of the modules that it declares.
    fn read_module(&mut self, folder: &Path, module: &[String]) {
        let below = folder.join(&module[module.len() - 1]);
        let beside = below.with_extension("rs");
        let file = if beside.exists() { beside } else { below.join("mod.rs") };
        let tokens = read_tokens(&file);
        let text = std::fs::read_to_string(&file).unwrap();
        for (path, line) in paths(&tokens, module) {
            let Some(first) = path.first() else { continue };
            let to = self.exported.get(first).unwrap_or(first);
            if self.modules.contains(to) && *to != module[0] {
                let text = text.lines().nth(line - 1).unwrap().trim().to_owned();
                let mention = Mention { file: file.clone(), line, text };
                let edge = (module[0].clone(), to.clone());
                self.imports.entry(edge).or_default().push(mention);
            }
        }
        for name in declared_modules(&tokens) {
            self.read_module(&below, &[module, &[name]].concat());
        }
    }

    /// The sets of two or more modules each of which imports the others by some way.
    fn cycles(&self) -> BTreeSet<BTreeSet<String>> {
        let reached: BTreeMap<&String, BTreeSet<&String>> =
            self.modules.iter().map(|module| (module, self.reached_from(module))).collect();
        let cycle_of = |module| -> BTreeSet<String> {
            let mutual = reached[module].iter().filter(|other| reached[*other].contains(module));
            mutual.map(|other| (*other).clone()).collect()
        };
        self.modules.iter().map(cycle_of).filter(|cycle| cycle.len() > 1).collect()
    }

    fn reached_from<'a>(&'a self, module: &'a String) -> BTreeSet<&'a String> {
        let mut reached = BTreeSet::new();
        let mut next = vec![module];
        while let Some(from) = next.pop() {
            let targets = self.imports.keys().filter(|(importer, _)| importer == from);
            next.extend(targets.map(|(_, to)| to).filter(|to| reached.insert(*to)));
        }
        reached
    }

    /// The imports inside a cycle, each with its number of mentions and the first one.
    fn describe(&self, cycle: &BTreeSet<String>) -> String {
        let mut text = format!("  cycle of {}: {cycle:?}\n", cycle.len());
        for ((from, to), mentions) in &self.imports {
            if cycle.contains(from) && cycle.contains(to) {
                let Mention { file, line, text: example } = &mentions[0];
                let file = file.strip_prefix(&self.root).unwrap().display();
                let count = mentions.len();
                writeln!(text, "    {from} -> {to} ({count}): {file}:{line}: {example}").unwrap();
            }
        }
        text
    }
}

/// A word, `::`, or one other character, and its line.
#[derive(Clone)]
struct Token {
    text: String,
    line: usize,
}

fn read_tokens(file: &Path) -> Vec<Token> {
    let text =
        std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    without_tests(&tokens(&text))
}

/// Returns the tokens of a text without comments, strings and characters.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let (len, is_token) = if let Some(len) = comment_len(rest).or_else(|| literal_len(rest)) {
            (len, false)
        } else if is_word(first) {
            (rest.find(|c| !is_word(c)).unwrap_or(rest.len()), true)
        } else if rest.starts_with("::") {
            (2, true)
        } else {
            (first.len_utf8(), !first.is_whitespace())
        };
        if is_token {
            tokens.push(Token { text: rest[..len].to_owned(), line });
        }
        line += rest[..len].matches('\n').count();
        rest = &rest[len..];
    }
    tokens
}

/// Returns the length of the comment at the start of a text.
fn comment_len(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    text.starts_with("/*").then(|| text.find("*/").map_or(text.len(), |at| at + 2))
}

/// Returns the length of the string, character or lifetime at the start of a text.
fn literal_len(text: &str) -> Option<usize> {
    if let Some(raw) = text.strip_prefix("br").or_else(|| text.strip_prefix('r')) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let end = format!("\"{}", &raw[..hashes]);
            let start = text.len() - raw.len() + hashes + 1;
            return Some(start + text[start..].find(&end)? + end.len());
        }
    }
    let quote = text.chars().next().filter(|first| matches!(first, '"' | '\''))?;
    let mut chars = text.char_indices().skip(1);
    if quote == '\'' && !text.starts_with("'\\") && text.chars().nth(2) != Some('\'') {
        return Some(1);
    }
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    None
}

fn is_text(tokens: &[Token], at: usize, text: &str) -> bool {
    tokens.get(at).is_some_and(|token| token.text == text)
}

fn starts_with(tokens: &[Token], at: usize, texts: &[&str]) -> bool {
    texts.iter().enumerate().all(|(index, text)| is_text(tokens, at + index, text))
}

/// Removes the items, statements and fields under `#[cfg(test)]`.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let plain = ["#", "[", "cfg", "(", "test", ")", "]"];
        if starts_with(tokens, at, &plain)
            || starts_with(tokens, at, &["#", "[", "cfg", "(", "all", "(", "test", ","])
        {
            at = item_end(tokens, at);
        } else {
            kept.push(tokens[at].clone());
            at += 1;
        }
    }
    kept
}

/// Returns the end of the item, statement or field whose attributes start at a token.
fn item_end(tokens: &[Token], mut at: usize) -> usize {
    while is_text(tokens, at, "#") {
        at = group_end(tokens, at + 1);
    }
    let is_use = is_text(tokens, at, "use");
    if is_text(tokens, at, "pub") {
        at += 1;
        at = if is_text(tokens, at, "(") { group_end(tokens, at) } else { at };
    }
    let is_field = is_text(tokens, at + 1, ":");
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            ";" => return at + 1,
            "," if is_field => return at + 1,
            "}" | ")" | "]" => return at,
            "{" if !is_use => return group_end(tokens, at),
            "{" | "(" | "[" => at = group_end(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// Returns the end of the group of brackets that starts at a token.
fn group_end(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token.text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Returns the modules that are declared without a body.
fn declared_modules(tokens: &[Token]) -> Vec<String> {
    let is_declaration = |at: &usize| is_text(tokens, *at, "mod") && is_text(tokens, at + 2, ";");
    (0..tokens.len()).filter(is_declaration).map(|at| tokens[at + 1].text.clone()).collect()
}

/// Returns the paths that start with `crate` or `super`, from the root of the crate, and their
/// lines.
fn paths(tokens: &[Token], module: &[String]) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if at > 0 && is_text(tokens, at - 1, "::") {
            at += 1;
        } else if starts_with(tokens, at, &["crate", "::"]) {
            at += 2;
            found.extend(use_tree(tokens, &mut at, &[]));
        } else if starts_with(tokens, at, &["super", "::"]) {
            let mut depth = module.len();
            while starts_with(tokens, at, &["super", "::"]) {
                depth = depth.saturating_sub(1);
                at += 2;
            }
            found.extend(use_tree(tokens, &mut at, &module[..depth]));
        } else {
            at += 1;
        }
    }
    found
}

/// Collects the paths of a use tree from a token on, with a prefix; ends after the tree.
fn use_tree(tokens: &[Token], at: &mut usize, prefix: &[String]) -> Vec<(Vec<String>, usize)> {
    let mut path = prefix.to_vec();
    let line = tokens.get(*at).map_or(0, |token| token.line);
    loop {
        if is_text(tokens, *at, "{") {
            let mut found = Vec::new();
            *at += 1;
            while *at < tokens.len() && !is_text(tokens, *at, "}") {
                let before = *at;
                found.extend(use_tree(tokens, at, &path));
                if is_text(tokens, *at, "as") {
                    *at += 2;
                }
                if is_text(tokens, *at, ",") || *at == before {
                    *at += 1;
                }
            }
            *at += 1;
            return found;
        }
        let is_word = |token: &&Token| token.text.starts_with(|c: char| c.is_alphabetic());
        if let Some(word) = tokens.get(*at).filter(is_word) {
            if word.text != "self" {
                path.push(word.text.clone());
            }
            *at += 1;
        }
        if !is_text(tokens, *at, "::") {
            return vec![(path, line)];
        }
        *at += 1;
    }
}
