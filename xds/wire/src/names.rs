//! The names and versions of a request, each list in one buffer.
//!
//! A client that reconnects sends a thousand names of each type. A string for each would take more
//! time than all else that is done with them.

/// A list of names in one buffer, in the order of the request. A name may occur more than once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameList {
    text: String,
    /// Where each name ends in the text; the next one begins there.
    ends: Vec<usize>,
}

impl NameList {
    /// The number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no names.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The length of all names together, in bytes.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Makes room for this length of text, if the list is empty.
    pub(crate) fn reserve(&mut self, text_len: usize) {
        if self.is_empty() {
            self.text.reserve_exact(text_len);
        }
    }

    /// Frees capacity that names do not need. It follows from the length of a message, which may consist of something
    /// else.
    pub(crate) fn shrink(&mut self) {
        if self.text.capacity() > 4 * self.text.len() + 1024 {
            self.text.shrink_to_fit();
        }
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.text.capacity()
    }

    /// Appends a name.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len());
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        let mut begin = 0;
        self.ends.iter().filter_map(move |end| {
            let name = self.text.get(begin..*end);
            begin = *end;
            name
        })
    }
}

impl<S: AsRef<str>> Extend<S> for NameList {
    fn extend<I: IntoIterator<Item = S>>(&mut self, names: I) {
        for name in names {
            self.push(name.as_ref());
        }
    }
}

impl<S: AsRef<str>> FromIterator<S> for NameList {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let mut list = Self::default();
        list.extend(names);
        list
    }
}

impl<S: AsRef<str>, const N: usize> From<[S; N]> for NameList {
    fn from(names: [S; N]) -> Self {
        names.into_iter().collect()
    }
}

/// The versions that a client reports to have, by name, in one buffer.
///
/// It is a map of protobuf: of entries with the same name, the last one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InitialVersions {
    text: String,
    /// Where the name and the version of each entry end in the text; the next entry begins there.
    ends: Vec<(usize, usize)>,
    names_len: usize,
}

impl InitialVersions {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The length of all names together, in bytes.
    pub fn names_len(&self) -> usize {
        self.names_len
    }

    /// The length of all names and versions together, in bytes.
    pub fn text_len(&self) -> usize {
        self.text.len()
    }

    /// Makes room for this length of text, if there are no entries.
    pub(crate) fn reserve(&mut self, text_len: usize) {
        if self.is_empty() {
            self.text.reserve_exact(text_len);
        }
    }

    /// Frees capacity that entries do not need, as [`NameList::shrink`].
    pub(crate) fn shrink(&mut self) {
        if self.text.capacity() > 4 * self.text.len() + 1024 {
            self.text.shrink_to_fit();
        }
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.text.capacity()
    }

    /// Appends an entry. An earlier one with the same name counts no longer.
    pub fn push(&mut self, name: &str, version: &str) {
        self.text.push_str(name);
        let name_end = self.text.len();
        self.text.push_str(version);
        self.ends.push((name_end, self.text.len()));
        self.names_len += name.len();
    }

    /// The names and versions of all entries, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + Clone {
        self.entries().filter_map(|(entry, name_len)| entry.split_at_checked(name_len))
    }

    /// The text of each entry, with the length of its name; the rest is its version.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&str, usize)> + Clone {
        let mut begin = 0;
        self.ends.iter().filter_map(move |(name_end, end)| {
            let (entry, name_len) = (self.text.get(begin..*end), name_end - begin);
            begin = *end;
            entry.map(|entry| (entry, name_len))
        })
    }
}

impl<N: AsRef<str>, V: AsRef<str>> Extend<(N, V)> for InitialVersions {
    fn extend<I: IntoIterator<Item = (N, V)>>(&mut self, entries: I) {
        for (name, version) in entries {
            self.push(name.as_ref(), version.as_ref());
        }
    }
}

impl<N: AsRef<str>, V: AsRef<str>> FromIterator<(N, V)> for InitialVersions {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> Self {
        let mut versions = Self::default();
        versions.extend(entries);
        versions
    }
}

impl<N: AsRef<str>, V: AsRef<str>, const LEN: usize> From<[(N, V); LEN]> for InitialVersions {
    fn from(entries: [(N, V); LEN]) -> Self {
        entries.into_iter().collect()
    }
}
