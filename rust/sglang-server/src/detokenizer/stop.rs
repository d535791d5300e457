//! Finds stop strings in text that arrives in pieces (Knuth-Morris-Pratt).
//!
//! The first stop string that is completed ends the text. If several are completed by the same
//! byte, the longest one counts. So the result does not depend on how the text is split.
//!
//! Invariants: only the longest suffix of the text that is a prefix of a stop string is held back.
//! It is released when it no longer matches, or at the end of the text. Each byte costs amortised
//! constant time per stop string.

use std::{mem, sync::Arc};

/// The stop strings of a request.
#[derive(Clone, Debug, Default)]
pub struct Stops(Arc<[Stop]>);

#[derive(Debug)]
struct Stop {
    text: String,
    /// For each prefix: the length of its longest proper suffix that is also a prefix.
    borders: Vec<usize>,
}

/// Searches one text for stop strings.
#[derive(Clone, Debug)]
pub struct StopFinder {
    stops: Stops,
    keep_stop: bool,
    /// For each stop string: how many bytes of it the text ends with.
    matched: Vec<usize>,
    held: String,
    found: Option<usize>,
}

impl Stops {
    /// The stop strings; empty ones are ignored.
    #[must_use]
    pub fn new(texts: &[String]) -> Self {
        let texts = texts.iter().filter(|text| !text.is_empty());
        Self(texts.map(|text| Stop::new(text)).collect())
    }
}

impl Stop {
    fn new(text: &str) -> Self {
        let mut stop = Self {
            text: text.to_owned(),
            borders: vec![0],
        };
        let mut border = 0;
        for &byte in &text.as_bytes()[1..] {
            border = stop.next(border, byte);
            stop.borders.push(border);
        }
        stop
    }

    /// The new number of matched bytes after `byte`, if `matched` bytes matched before.
    fn next(&self, mut matched: usize, byte: u8) -> usize {
        let bytes = self.text.as_bytes();
        while matched > 0 && bytes[matched] != byte {
            matched = self.borders[matched - 1];
        }
        matched + usize::from(bytes[matched] == byte)
    }
}

impl StopFinder {
    /// A finder for a new text. With `keep_stop`, the stop string stays in the text.
    #[must_use]
    pub fn new(stops: Stops, keep_stop: bool) -> Self {
        Self {
            matched: vec![0; stops.0.len()],
            stops,
            keep_stop,
            held: String::new(),
            found: None,
        }
    }

    /// The stop string that has ended the text.
    #[must_use]
    pub fn found(&self) -> Option<&str> {
        self.found.map(|index| self.stops.0[index].text.as_str())
    }

    /// Adds text, and returns the part that cannot belong to a stop string. Returns nothing once a
    /// stop string was found.
    pub fn push(&mut self, more: String) -> String {
        if self.stops.0.is_empty() {
            return more;
        }
        if self.found.is_some() {
            return String::new();
        }
        let before = self.held.len();
        let mut text = mem::take(&mut self.held);
        text.push_str(&more);
        for (at, byte) in more.bytes().enumerate() {
            if let Some(index) = self.step(byte) {
                self.found = Some(index);
                let end = before + at + 1;
                let start = end - self.stops.0[index].text.len();
                text.truncate(if self.keep_stop { end } else { start });
                return text;
            }
        }
        let longest = self.matched.iter().copied().max().unwrap_or(0);
        // A stop string begins at a character boundary, so the text is split at one.
        self.held = text.split_off(text.len() - longest);
        text
    }

    /// Ends the text: returns the text that was held back.
    ///
    /// `matched` is the stop string that the scheduler found; it may be one that is not in
    /// `stops`. The text is cut there, if it has not been returned yet.
    pub fn finish(&mut self, more: String, matched: Option<&str>) -> String {
        let mut text = self.push(more);
        if self.found.is_none() {
            text.push_str(&self.held);
            let at = matched.filter(|stop| !stop.is_empty()).and_then(|stop| {
                let start = text.find(stop)?;
                Some(start + if self.keep_stop { stop.len() } else { 0 })
            });
            text.truncate(at.unwrap_or(text.len()));
        }
        text
    }

    /// Adds a byte, and returns the longest stop string that it completes.
    fn step(&mut self, byte: u8) -> Option<usize> {
        let mut longest: Option<usize> = None;
        for (index, (stop, matched)) in self.stops.0.iter().zip(&mut self.matched).enumerate() {
            *matched = stop.next(*matched, byte);
            let length = |index: usize| self.stops.0[index].text.len();
            if *matched == stop.text.len() && longest.is_none_or(|l| length(l) < *matched) {
                longest = Some(index);
            }
        }
        longest
    }
}
