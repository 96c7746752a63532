//! Which ids occur: distinct conversations and repeated rows, by hash.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hashes that are held at most, of each kind. Beyond, only hashes that end in enough zero bits are kept, and counts are scaled up.
const MAX_HASHES: usize = 2_000_000;

/// A set that is too large to hold is held as the share of it whose hashes end in `zero_bits` zeros: still an unbiased sample of ids, not
/// of rows, so that every copy of a kept id is kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids {
    /// Hash of the conversation, hash of conversation and turn.
    rows: Vec<(u64, u64)>,
    without_id: u64,
    zero_bits: u32,
}

impl Ids {
    /// Notes the ids of a row. Ids of different data sets are different.
    pub(crate) fn add(&mut self, dataset: &[u8], id: Option<&[u8]>, conversation: Option<&[u8]>, turn: Option<&[u8]>) {
        let Some(of_conversation) = conversation.or(id) else {
            self.without_id += 1;
            return;
        };
        let seed = xxh3_64_with_seed(dataset, 0);
        let conversation = xxh3_64_with_seed(of_conversation, seed);
        let row = xxh3_64_with_seed(id.unwrap_or_default(), conversation);
        let row = turn.map_or(row, |turn| xxh3_64_with_seed(turn, row));
        if kept(conversation, self.zero_bits) {
            self.push((conversation, row));
        }
    }

    fn push(&mut self, hashes: (u64, u64)) {
        self.rows.push(hashes);
        while self.rows.len() > MAX_HASHES {
            self.zero_bits += 1;
            let zero_bits = self.zero_bits;
            self.rows.retain(|(conversation, _)| kept(*conversation, zero_bits));
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.without_id += other.without_id;
        self.zero_bits = self.zero_bits.max(other.zero_bits);
        let zero_bits = self.zero_bits;
        self.rows.retain(|(conversation, _)| kept(*conversation, zero_bits));
        for hashes in other.rows {
            if kept(hashes.0, self.zero_bits) {
                self.push(hashes);
            }
        }
    }

    /// Distinct conversations (rows without an id count as one each), rows seen before, and whether both are estimates.
    pub(crate) fn count(mut self) -> (u64, u64, bool) {
        let scale = 1_u64 << self.zero_bits;
        self.rows.sort_unstable_by_key(|(conversation, row)| (*row, *conversation));
        let repeated = self.rows.windows(2).filter(|pair| pair[0].1 == pair[1].1).count() as u64;
        self.rows.sort_unstable();
        self.rows.dedup_by_key(|(conversation, _)| *conversation);
        (self.rows.len() as u64 * scale + self.without_id, repeated * scale, self.zero_bits > 0)
    }
}

/// Which texts occur, by hash, on a sample where there are too many.
#[derive(Debug, Clone, Default)]
pub(crate) struct Texts {
    hashes: Vec<u64>,
    zero_bits: u32,
}

impl Texts {
    /// Notes a text.
    pub(crate) fn add(&mut self, hash: u64) {
        if kept(hash, self.zero_bits) {
            self.hashes.push(hash);
            while self.hashes.len() > MAX_HASHES {
                self.zero_bits += 1;
                let zero_bits = self.zero_bits;
                self.hashes.retain(|hash| kept(*hash, zero_bits));
            }
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.zero_bits = self.zero_bits.max(other.zero_bits);
        let zero_bits = self.zero_bits;
        self.hashes.retain(|hash| kept(*hash, zero_bits));
        other.hashes.into_iter().for_each(|hash| self.add(hash));
    }

    /// How many texts had been seen before, and whether that is an estimate.
    pub(crate) fn repeated(mut self) -> (u64, bool) {
        self.hashes.sort_unstable();
        let repeated = self.hashes.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
        (repeated << self.zero_bits, self.zero_bits > 0)
    }
}

fn kept(hash: u64, zero_bits: u32) -> bool {
    hash.trailing_zeros() >= zero_bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_rows_of_one_conversation_and_repeats_are_counted() {
        let mut ids = Ids::default();
        ids.add(b"d", Some(b"c"), None, Some(b"0"));
        ids.add(b"d", Some(b"c"), None, Some(b"1"));
        ids.add(b"d", Some(b"x"), None, None);
        ids.add(b"d", Some(b"x"), None, None);
        ids.add(b"e", Some(b"x"), None, None);
        ids.add(b"d", None, None, None);
        assert_eq!(ids.count(), (4, 1, false));
    }

    #[test]
    fn too_many_ids_are_estimated_and_said_to_be() {
        let mut ids = Ids::default();
        let n = 5_000_000_u64;
        for id in 0..n {
            ids.add(b"d", Some(&id.to_le_bytes()), None, None);
        }
        let (conversations, repeated, estimated) = ids.count();
        assert!(estimated && repeated == 0);
        assert!(conversations.abs_diff(n) < n / 100, "{conversations}");
    }
}
