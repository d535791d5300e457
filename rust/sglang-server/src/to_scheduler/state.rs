//! Where a request is on its way to the scheduler and back.
//!
//! Invariant: there is one way into `Queued`, through the last checks; an error or an
//! abort ends a request from wherever it is; what has ended stays so.

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// Taken out of the inbox.
    Received,
    /// Its own rules are checked, and its answer has a place to go.
    Validating,
    /// Its sampling parameters are brought into the scheduler's form.
    Normalizing,
    /// Its text is with the tokenizer.
    Tokenizing,
    /// It is measured against the model's context.
    PreSendValidating,
    /// The scheduler has it, or the shard that answers it.
    Queued,
    /// It failed.
    Failed,
    /// Its client has left.
    Aborted,
}

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// Its turn has come.
    Validate,
    /// A generation passed.
    Normalize,
    /// It is text.
    Tokenize,
    /// It has its tokens, or needs none.
    Measure,
    /// It fits.
    Queue,
    /// Something is wrong with it.
    Fail,
    /// Its client left.
    Abort,
}

impl State {
    /// Where `event` leads, if it can happen here.
    pub(crate) fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Failed | Self::Aborted, _) => None,
            (_, Event::Fail) => Some(Self::Failed),
            (_, Event::Abort) => Some(Self::Aborted),
            (Self::Received, Event::Validate) => Some(Self::Validating),
            (Self::Validating, Event::Normalize) => Some(Self::Normalizing),
            (Self::Normalizing, Event::Tokenize) => Some(Self::Tokenizing),
            (Self::Validating | Self::Normalizing | Self::Tokenizing, Event::Measure) => {
                Some(Self::PreSendValidating)
            }
            (Self::PreSendValidating, Event::Queue) => Some(Self::Queued),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, State};

    const STATES: [State; 8] = [
        State::Received,
        State::Validating,
        State::Normalizing,
        State::Tokenizing,
        State::PreSendValidating,
        State::Queued,
        State::Failed,
        State::Aborted,
    ];

    #[test]
    fn every_edge() {
        let edges: &[(State, Event, State)] = &[
            (State::Received, Event::Validate, State::Validating),
            (State::Validating, Event::Normalize, State::Normalizing),
            (State::Validating, Event::Measure, State::PreSendValidating),
            (State::Normalizing, Event::Tokenize, State::Tokenizing),
            (State::Normalizing, Event::Measure, State::PreSendValidating),
            (State::Tokenizing, Event::Measure, State::PreSendValidating),
            (State::PreSendValidating, Event::Queue, State::Queued),
        ];
        let steps = [
            Event::Validate,
            Event::Normalize,
            Event::Tokenize,
            Event::Measure,
            Event::Queue,
        ];
        for state in STATES {
            for event in steps {
                let edge = edges.iter().find(|edge| (edge.0, edge.1) == (state, event));
                assert_eq!(
                    edge.map(|edge| edge.2),
                    state.after(event),
                    "{state:?} {event:?}"
                );
            }
        }
    }

    #[test]
    fn an_end_comes_from_everywhere_and_once() {
        for state in STATES {
            let ended = matches!(state, State::Failed | State::Aborted);
            let expected = |end| (!ended).then_some(end);
            assert_eq!(
                expected(State::Failed),
                state.after(Event::Fail),
                "{state:?}"
            );
            assert_eq!(
                expected(State::Aborted),
                state.after(Event::Abort),
                "{state:?}"
            );
        }
    }
}
