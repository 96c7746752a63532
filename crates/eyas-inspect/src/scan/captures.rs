//! What the scan noted in one row: for each location that occurs, where its value lies.

/// What kind of value lies at a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Number,
    String,
    Array,
    Object,
}

/// A value of the row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Captured {
    pub(crate) kind: Kind,
    /// Bytes of the region: a string without its quotes, anything else whole.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Elements of an array, code points of a string.
    pub(crate) size: u32,
    /// The string holds escapes.
    pub(crate) escaped: bool,
    /// The string holds `\u` escapes.
    pub(crate) unicode_escaped: bool,
    /// The string holds `\u` escapes of characters that need none.
    pub(crate) ascii_escaped: bool,
}

impl Captured {
    /// No value at no place, to build others from.
    pub(crate) const NOTHING: Self = Self {
        kind: Kind::Null,
        start: 0,
        end: 0,
        size: 0,
        escaped: false,
        unicode_escaped: false,
        ascii_escaped: false,
    };

    /// Its bytes.
    pub(crate) fn of<'a>(&self, region: &'a [u8]) -> &'a [u8] {
        &region[self.start as usize..self.end as usize]
    }
}

/// Values by slot, with a list of the slots that are filled, so that a row costs what it holds and not what could be held.
#[derive(Debug)]
pub(crate) struct Captures {
    values: Vec<Option<Captured>>,
    filled: Vec<u16>,
    /// Captures of the message that is being read; they count when it turns out to be the last one and the assistant's.
    message: Vec<(u16, Captured)>,
    last_assistant: Vec<(u16, Captured)>,
}

impl Captures {
    pub(crate) fn new(n_slots: usize) -> Self {
        Self { values: vec![None; n_slots], filled: Vec::new(), message: Vec::new(), last_assistant: Vec::new() }
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        for slot in self.filled.drain(..) {
            self.values[usize::from(slot)] = None;
        }
        self.message.clear();
        self.last_assistant.clear();
    }

    #[inline]
    pub(crate) fn set(&mut self, slot: u16, in_message: bool, value: Captured) {
        if in_message {
            self.message.retain(|(known, _)| *known != slot);
            self.message.push((slot, value));
            return;
        }
        let place = &mut self.values[usize::from(slot)];
        if place.is_none() {
            self.filled.push(slot);
        }
        *place = Some(value);
    }

    /// A message begins.
    pub(crate) fn begin_message(&mut self) {
        self.message.clear();
    }

    /// A message ends; `assistant` says whose it is.
    pub(crate) fn end_message(&mut self, assistant: bool) {
        self.last_assistant.clear();
        if assistant {
            std::mem::swap(&mut self.message, &mut self.last_assistant);
        }
        self.message.clear();
    }

    /// The list of messages ends: what its last message holds counts, if it is the assistant's.
    pub(crate) fn end_messages(&mut self) {
        let last = std::mem::take(&mut self.last_assistant);
        for (slot, value) in &last {
            self.set(*slot, false, *value);
        }
        self.last_assistant = last;
        self.last_assistant.clear();
    }

    /// The captured roles of the message that is being read.
    pub(crate) fn message(&self) -> &[(u16, Captured)] {
        &self.message
    }

    #[cfg(test)]
    pub(crate) fn get(&self, slot: u16) -> Option<Captured> {
        self.values[usize::from(slot)]
    }

    /// Filled slots with their values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u16, Captured)> + '_ {
        self.filled.iter().filter_map(|slot| Some((*slot, self.values[usize::from(*slot)]?)))
    }
}
