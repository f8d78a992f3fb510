//! Stacks large enough for the syntax trees of queries.
//!
//! Parsing, planning, computing and dropping recurse over the levels of a tree. Each level needs
//! some query text, so the length of the text limits the depth. Untouched address space costs
//! nothing.

use std::io;
use std::thread::{Builder, JoinHandle};

use crate::parse::TREE_DEPTH_MAX;

/// Bytes of stack for trees as deep as those of common queries.
pub(crate) const STACK_BYTES_MIN: usize = 8 << 20;
/// Maximum bytes of stack per level of a tree, in a build without optimization.
const LEVEL_BYTES: usize = 32 << 10;
/// Bytes of stack that suffice for any tree.
pub(crate) const STACK_BYTES_MAX: usize = TREE_DEPTH_MAX * LEVEL_BYTES;
/// Length of the shortest text of a level: `+a`.
const LEVEL_TEXT_BYTES: usize = 2;

/// Returns the bytes of stack that recursion over the tree of a query text needs.
pub fn stack_bytes(text: &str) -> usize {
    let levels = (text.len() / LEVEL_TEXT_BYTES).min(TREE_DEPTH_MAX);
    (levels * LEVEL_BYTES).max(STACK_BYTES_MIN)
}

/// Starts a thread with a stack of `stack_bytes` bytes.
///
/// Errors: the system cannot start a thread, for lack of memory; the work is dropped.
pub fn start<T: Send + 'static>(
    stack_bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    Builder::new().name("query".to_owned()).stack_size(stack_bytes).spawn(work)
}

/// Tree that is dropped on a large enough stack.
pub(crate) struct DeepTree<T: Send + 'static> {
    tree: Option<T>,
    stack_bytes: usize,
}

impl<T: Send + 'static> DeepTree<T> {
    /// Wraps a tree that needs `stack_bytes` bytes of stack.
    pub(crate) fn new(tree: T, stack_bytes: usize) -> DeepTree<T> {
        DeepTree { tree: Some(tree), stack_bytes }
    }
}

impl<T: Send + 'static> std::ops::Deref for DeepTree<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.tree.as_ref().expect("taken only when this is dropped")
    }
}

impl<T: Send + 'static> Drop for DeepTree<T> {
    fn drop(&mut self) {
        let Some(tree) = self.tree.take().filter(|_| self.stack_bytes > STACK_BYTES_MIN) else {
            return;
        };
        // If no thread starts, the tree leaks: dropping it here could overflow the stack.
        let tree = std::mem::ManuallyDrop::new(tree);
        let _ = start(self.stack_bytes, move || drop(std::mem::ManuallyDrop::into_inner(tree)));
    }
}
