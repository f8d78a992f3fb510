//! Names of functions by address, from the symbol tables of the loaded files.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::sync::Arc;

use object::{Object as _, ObjectSymbol as _, ReadCache, SymbolKind};

use crate::kernel::unwind::{self, Module};

/// Maximum number of characters of a name.
const NAME_CHARS_MAX: usize = 1_024;

/// Names by address.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    names: HashMap<u64, Arc<str>>,
}

impl Symbols {
    /// Finds the names of all addresses, with one symbol table in memory at a time.
    ///
    /// Addresses of a module without symbols or file have its name.
    pub(crate) fn of(addresses: impl IntoIterator<Item = u64>) -> Symbols {
        let mut addresses: Vec<u64> = addresses.into_iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        let mut names = HashMap::new();
        for module in unwind::modules() {
            let start = addresses.partition_point(|address| *address < module.addresses.start);
            let end = addresses.partition_point(|address| *address < module.addresses.end);
            if start == end {
                continue;
            }
            let inside = &addresses[start..end];
            // Without a file, the second loop names all addresses.
            let _ = add_names(module, inside, &mut names);
            let file = module.path.file_name().unwrap_or_default().to_string_lossy();
            for address in inside {
                names.entry(*address).or_insert_with(|| format!("[{file}]").into());
            }
        }
        Symbols { names }
    }

    /// Returns the name of the function at an address; `None` outside of code.
    pub(crate) fn name(&self, address: u64) -> Option<&str> {
        self.names.get(&address).map(AsRef::as_ref)
    }
}

/// Adds the names of sorted addresses of a module. Returns `None` if its file cannot be read.
fn add_names(module: &Module, addresses: &[u64], names: &mut HashMap<u64, Arc<str>>) -> Option<()> {
    let cache = ReadCache::new(File::open(&module.path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
            continue;
        }
        let Some(start) = symbol.address().checked_add(module.bias) else { continue };
        let Some(end) = start.checked_add(symbol.size()) else { continue };
        let first = addresses.partition_point(|address| *address < start);
        let inside = addresses[first..].iter().take_while(|address| **address < end);
        let mut name = None;
        for address in inside {
            // The first of several names of an address is used.
            let Entry::Vacant(entry) = names.entry(*address) else { continue };
            let name =
                name.get_or_insert_with(|| demangled(symbol.name_bytes().unwrap_or_default()));
            entry.insert(Arc::clone(name));
        }
    }
    Some(())
}

/// Returns a demangled name.
fn demangled(name: &[u8]) -> Arc<str> {
    let name = String::from_utf8_lossy(name);
    let name = format!("{:#}", rustc_demangle::demangle(&name));
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => name[..end].into(),
        None => name.into(),
    }
}
