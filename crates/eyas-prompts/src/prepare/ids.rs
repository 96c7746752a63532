//! Sample ids: unique, and the same for the same prompt whatever the order of the source.

use super::report::IdReport;
use std::collections::HashMap;
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
    let mark = own.mark();
    let mut made_before: HashMap<u64, u32> = HashMap::new();
    let mut owned_before: HashMap<(&str, u128), u64> = HashMap::new();
    let mut names = Vec::with_capacity(prompts.len());
    for prompt in prompts {
        let hash = short(prompt.content);
        let Some(id) = prompt.own else {
            report.made += 1;
            names.push(own.first_free(hash, made_before.entry(hash).or_default()));
            continue;
        };
        let is_conflict = own.is_conflict(id);
        let nth = owned_before.entry((id, prompt.content)).or_default();
        *nth += 1;
        report.conflicting += u64::from(is_conflict);
        report.repeated += u64::from(*nth > 1);
        names.push(match (is_conflict, *nth) {
            (false, 1) => id.to_owned(),
            (false, nth) => format!("{id}{mark}{nth}"),
            (true, 1) => format!("{id}{mark}{hash:016x}"),
            (true, nth) => format!("{id}{mark}{hash:016x}{mark}{nth}"),
        });
    }
    names
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

    /// What stands between an id and what is added to it: one `#` more than any id has in a row, so that no added-to id is another's own.
    fn mark(&self) -> String {
        let longest = |id: &&str| id.split(|c| c != '#').map(str::len).max().unwrap_or_default();
        "#".repeat(self.by_id.keys().map(longest).max().unwrap_or_default() + 1)
    }

    /// The next name made from a hash that no row has as its own id; `n` counts on.
    fn first_free(&self, hash: u64, n: &mut u32) -> String {
        loop {
            let name = format!("h{hash:016x}-{n}");
            *n += 1;
            if !self.by_id.contains_key(name.as_str()) {
                return name;
            }
        }
    }

    fn is_conflict(&self, id: &str) -> bool {
        self.by_id.get(id).is_some_and(|(_, differs)| *differs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

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
        check(&[(Some("a"), 1), (Some("a"), 1), (Some("a#2"), 5)], &["a", "a##2", "a#2"]);
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
