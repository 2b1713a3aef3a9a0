//! Which pieces a text begins with.

use std::ops::Range;

/// A set of byte strings, each with a value, searched along a text byte by byte.
///
/// Nodes are numbered level by level, so that the children of a node follow one another, and so do those of the next:
/// a node needs only its label, where its children begin, and its value.
#[derive(Debug, Clone)]
pub(super) struct Trie {
    labels: Vec<u8>,
    /// Children of node n are the nodes `children[n]..children[n + 1]`, with ascending labels.
    children: Vec<usize>,
    values: Vec<Option<usize>>,
}

impl Default for Trie {
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl Trie {
    pub(super) const ROOT: usize = 0;

    /// A trie of keys, none of which may stand twice.
    pub(super) fn new(mut keys: Vec<(&[u8], usize)>) -> Self {
        keys.sort_unstable();
        let mut trie = Self { labels: vec![0], children: vec![1], values: Vec::new() };
        // The keys below each node, in the order of the nodes, with the length of what they have in common.
        let mut below: Vec<(Range<usize>, usize)> = vec![(0..keys.len(), 0)];
        let mut node = 0;
        while let Some((Range { start, end }, depth)) = below.get(node).cloned() {
            let ends_here = start < end && keys[start].0.len() == depth;
            trie.values.push(ends_here.then(|| keys[start].1));
            let mut from = start + usize::from(ends_here);
            while from < end {
                let label = keys[from].0[depth];
                let to = from + keys[from..end].partition_point(|(key, _)| key[depth] == label);
                trie.labels.push(label);
                below.push((from..to, depth + 1));
                from = to;
            }
            trie.children.push(below.len());
            node += 1;
        }
        trie
    }

    /// The node that a byte leads to.
    pub(super) fn step(&self, node: usize, byte: u8) -> Option<usize> {
        let first = self.children[node];
        let found = self.labels[first..self.children[node + 1]].binary_search(&byte).ok()?;
        Some(first + found)
    }

    /// The value of the key that ends at a node.
    pub(super) fn value(&self, node: usize) -> Option<usize> {
        self.values[node]
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<usize> {
        key.iter().try_fold(Self::ROOT, |node, &byte| self.step(node, byte)).and_then(|node| self.value(node))
    }

    /// The length of the longest key that a text begins with.
    pub(super) fn longest(&self, text: &[u8]) -> Option<usize> {
        let mut node = Self::ROOT;
        let mut longest = None;
        for (position, &byte) in text.iter().enumerate() {
            let Some(next) = self.step(node, byte) else { break };
            node = next;
            if self.values[node].is_some() {
                longest = Some(position + 1);
            }
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_it_holds_and_nothing_else() {
        let keys: [&[u8]; 6] = [b"abc", b"a", b"b", b"abcde", b"\xe2\x96\x81", b"\xff"];
        let trie = Trie::new(keys.iter().enumerate().map(|(value, &key)| (key, value)).collect());
        for (value, key) in keys.iter().enumerate() {
            assert_eq!(trie.get(key), Some(value));
        }
        for absent in [&b""[..], b"ab", b"abcd", b"abcdef", b"c", b"\xe2\x96"] {
            assert_eq!(trie.get(absent), None);
        }
        assert_eq!(trie.longest(b"abcdx"), Some(3));
        assert_eq!(trie.longest(b"abcdex"), Some(5));
        assert_eq!(trie.longest(b"cab"), None);
        assert_eq!(trie.longest(b""), None);
        assert_eq!(Trie::default().longest(b"a"), None);
    }
}
