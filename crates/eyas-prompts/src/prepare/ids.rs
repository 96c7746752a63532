//! Sample ids: unique, and the same for the same prompt whatever the order of the source.

use super::report::IdReport;
use std::collections::{HashMap, HashSet};
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

/// What a prompt's id is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity<'a> {
    /// The row's own id.
    pub(super) own: Option<&'a str>,
    /// Hash of the prompt ids.
    pub(super) content: u128,
}

/// xxh3-128 of prompt ids as little-endian 32-bit numbers.
pub(super) fn content_hash(prompt_ids: &[u32]) -> u128 {
    let bytes: Vec<u8> = prompt_ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    xxh3_128(&bytes)
}

/// The place of a prompt in the shuffle; smallest first.
pub(super) fn order_key(seed: u64, dataset: &str, sample_id: &str) -> u64 {
    let mut bytes = Vec::with_capacity(dataset.len() + sample_id.len() + 1);
    bytes.extend_from_slice(dataset.as_bytes());
    // No data set name holds this byte, so the two parts cannot be shifted against each other.
    bytes.push(0);
    bytes.extend_from_slice(sample_id.as_bytes());
    xxh3_64_with_seed(&bytes, seed)
}

/// Names every prompt; the rules stand at [`prepare`](super).
pub(super) fn assign(prompts: &[Identity<'_>], report: &mut IdReport) -> Vec<String> {
    let own = OwnIds::of(prompts);
    let mut made_before: HashMap<u64, u32> = HashMap::new();
    let mut owned_before: HashMap<(&str, u128), u32> = HashMap::new();
    let mut generated: HashSet<String> = HashSet::new();
    let mut names = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let hash = short(prompt.content);
        let Some(id) = prompt.own else {
            report.made += 1;
            let n_before = made_before.entry(hash).or_default();
            names.push(first_free(n_before, |n| format!("h{hash:016x}-{n}"), |name| own.has(name)));
            *n_before += 1;
            continue;
        };
        let is_conflict = own.is_conflict(id);
        let n_before = owned_before.entry((id, prompt.content)).or_default();
        report.conflicting += u64::from(is_conflict);
        report.repeated += u64::from(*n_before > 0);
        if *n_before == 0 && !is_conflict {
            names.push(id.to_owned());
        } else {
            let name_of = |n: u32| match (is_conflict, n) {
                (true, 0) => format!("{id}#{hash:016x}"),
                (true, n) => format!("{id}#{hash:016x}#{}", u64::from(n) + 1),
                (false, n) => format!("{id}#{}", u64::from(n) + 1),
            };
            let name = first_free(n_before, name_of, |name| own.has(name) || generated.contains(name));
            generated.insert(name.clone());
            names.push(name);
        }
        *n_before += 1;
    }
    names
}

/// Counts `n` up to a name that nobody has. That it is not the first happens only where ids look like made ones.
fn first_free(n: &mut u32, name_of: impl Fn(u32) -> String, is_taken: impl Fn(&str) -> bool) -> String {
    loop {
        let name = name_of(*n);
        if !is_taken(&name) {
            return name;
        }
        *n += 1;
    }
}

/// The first 64 bits of a hash.
fn short(hash: u128) -> u64 {
    u64::try_from(hash >> 64).unwrap_or_default()
}

/// The rows' own ids, each with the content of its first prompt and whether others differ from it.
struct OwnIds<'a> {
    by_id: HashMap<&'a str, (u128, bool)>,
}

impl<'a> OwnIds<'a> {
    fn of(prompts: &[Identity<'a>]) -> Self {
        let mut by_id: HashMap<&'a str, (u128, bool)> = HashMap::new();
        for prompt in prompts {
            if let Some(id) = prompt.own {
                let (first, differs) = by_id.entry(id).or_insert((prompt.content, false));
                *differs |= *first != prompt.content;
            }
        }
        Self { by_id }
    }

    fn has(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    fn is_conflict(&self, id: &str) -> bool {
        self.by_id.get(id).is_some_and(|(_, differs)| *differs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(prompts: &[(Option<&str>, u128)], expect: &[&str]) {
        let identities: Vec<_> =
            prompts.iter().map(|(own, content)| Identity { own: *own, content: content << 64 }).collect();
        assert_eq!(assign(&identities, &mut IdReport::default()), expect);
    }

    #[test]
    fn rows_without_id_are_named_by_content_and_count() {
        check(
            &[(None, 1), (None, 2), (None, 1)],
            &["h0000000000000001-0", "h0000000000000002-0", "h0000000000000001-1"],
        );
    }

    #[test]
    fn equal_rows_under_one_id_are_counted_and_different_ones_named_by_content() {
        check(&[(Some("a"), 1), (Some("b"), 1), (Some("a"), 1)], &["a", "b", "a#2"]);
        check(
            &[(Some("a"), 1), (Some("a"), 2), (Some("a"), 1)],
            &["a#0000000000000001", "a#0000000000000002", "a#0000000000000001#2"],
        );
    }

    #[test]
    fn an_id_that_looks_like_a_made_one_keeps_its_name() {
        check(&[(Some("a"), 1), (Some("a"), 1), (Some("a#2"), 5)], &["a", "a#3", "a#2"]);
        check(&[(None, 1), (Some("h0000000000000001-0"), 9)], &["h0000000000000001-1", "h0000000000000001-0"]);
    }

    proptest! {
        #[test]
        fn names_are_unique_and_follow_the_prompt_not_its_place(
            rows in prop::collection::vec((prop::option::of(prop_oneof!["[ab]", "[ab]#2", "[ab]#0000000000000001", "h0000000000000001-[01]"]), 0u128..3), 0..24),
            seed in any::<u64>(),
        ) {
            let of = |rows: &[(Option<String>, u128)]| {
                let identities: Vec<_> = rows.iter().map(|(own, content)| Identity { own: own.as_deref(), content: content << 64 }).collect();
                assign(&identities, &mut IdReport::default())
            };
            let names = of(&rows);
            let unique: HashSet<_> = names.iter().collect();
            prop_assert_eq!(unique.len(), rows.len());

            // The same rows in another order: each name stands for the same content.
            let mut shuffled = rows.clone();
            shuffled.sort_by_key(|(own, content)| xxh3_64_with_seed(format!("{own:?}{content}").as_bytes(), seed));
            let before: HashMap<_, _> = names.into_iter().zip(rows.iter().map(|(_, content)| *content)).collect();
            let after: HashMap<_, _> = of(&shuffled).into_iter().zip(shuffled.iter().map(|(_, content)| *content)).collect();
            prop_assert_eq!(before, after);
        }
    }
}
