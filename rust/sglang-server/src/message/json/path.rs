//! The place of a value in a body, such as `sampling_params[1].stop[0]`.

use std::fmt;

/// Longer paths are cut in messages.
const MAX_SHOWN_CHARS: usize = 300;

/// The place of a value, linked to the place of its container.
#[derive(Clone, Copy, Debug)]
pub(in crate::message) enum Path<'a> {
    /// The body itself.
    Body,
    /// A key of an object.
    Key(&'a Path<'a>, &'a str),
    /// An element of a list.
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// The value under `key` of this object.
    pub(in crate::message) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    /// Element `index` of this list.
    pub(in crate::message) fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }

    /// The path for a message to the client, cut if it is long.
    pub(in crate::message) fn shown(&self) -> String {
        let mut path = self.to_string();
        if let Some((end, _)) = path.char_indices().nth(MAX_SHOWN_CHARS) {
            path.truncate(end);
            path.push_str("...");
        }
        path
    }
}

impl fmt::Display for Path<'_> {
    /// A key may come from the client, so only its first 100 characters are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => Ok(()),
            Self::Key(Self::Body, key) => write!(f, "{key:.100}"),
            Self::Key(object, key) => write!(f, "{object}.{key:.100}"),
            Self::Index(list, index) => write!(f, "{list}[{index}]"),
        }
    }
}
