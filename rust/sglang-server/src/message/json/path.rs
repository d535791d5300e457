//! Where in a body a value is: `sampling_params[1].stop[0]`.

use std::fmt;

/// Most characters of a path that are shown.
const MOST: usize = 300;

/// The place of a value, linked to that of what contains it.
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

    /// As it is shown to a client: of a deep place, how to begin.
    pub(in crate::message) fn shown(&self) -> String {
        let mut path = self.to_string();
        if let Some((end, _)) = path.char_indices().nth(MOST) {
            path.truncate(end);
            path.push_str("...");
        }
        path
    }
}

impl fmt::Display for Path<'_> {
    /// Keys may be the client's own, so only the first 100 characters of each are shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Body => Ok(()),
            Self::Key(Self::Body, key) => write!(f, "{key:.100}"),
            Self::Key(object, key) => write!(f, "{object}.{key:.100}"),
            Self::Index(list, index) => write!(f, "{list}[{index}]"),
        }
    }
}
