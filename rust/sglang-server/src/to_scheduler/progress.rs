//! The steps of a generation before it is sent to the scheduler: one type for each step.
//!
//! The order is [`Validated`], then [`Untokenized`] if the prompt is text, then
//! [`Unmeasured`], then [`Sendable`].
//!
//! Invariant: only the check between two steps creates the later type, and the check consumes
//! the earlier type. So a generation reaches the ring after all checks, and at most once.

use std::mem;

use super::rules;
use crate::{
    channel::ToScheduler,
    config::ServerArgs,
    error::RequestError,
    message::{GenerateRequest, Prompt},
    tokenizer::{AutoSpecials, Job, OnTokenized, Tokenized},
    wire,
};

/// A generation that has passed the checks that need no tokens.
#[derive(Debug)]
pub(super) struct Validated(Box<GenerateRequest>);

/// The step after [`Validated`], which depends on the prompt.
#[derive(Debug)]
pub(super) enum Prompted {
    Text(Untokenized),
    Ids(Unmeasured),
}

/// A generation that needs the tokens of its text.
#[derive(Debug)]
pub(super) struct Untokenized {
    request: Box<GenerateRequest>,
    text: String,
}

/// A generation that has its tokens, which may be too many for the context.
#[derive(Debug)]
pub(super) struct Unmeasured {
    request: Box<GenerateRequest>,
    ids: Vec<i32>,
    text: Option<String>,
}

/// A generation that fits the context.
#[derive(Debug)]
pub(super) struct Sendable(Unmeasured);

impl Validated {
    pub(super) fn check(
        request: Box<GenerateRequest>,
        args: &ServerArgs,
    ) -> Result<Self, RequestError> {
        rules::check_request(&request, args)?;
        Ok(Self(request))
    }

    pub(super) fn request(&self) -> &GenerateRequest {
        &self.0
    }

    pub(super) fn into_prompted(self) -> Prompted {
        let mut request = self.0;
        match mem::replace(&mut request.prompt, Prompt::Ids(Vec::new())) {
            Prompt::Text(text) => Prompted::Text(Untokenized { request, text }),
            Prompt::Ids(ids) => Prompted::Ids(Unmeasured {
                request,
                ids,
                text: None,
            }),
        }
    }
}

impl Untokenized {
    /// The job for the tokenizer, which hands its result to `answer`.
    pub(super) fn job(&self, answer: OnTokenized) -> Job {
        Job {
            text: self.text.clone(),
            special: AutoSpecials::Added,
            stop_strs: self.request.sampling.stop_strs.clone(),
            answer,
        }
    }

    pub(super) fn with_tokens(self, tokens: Tokenized) -> Unmeasured {
        let Self { mut request, text } = self;
        request.sampling.stop_str_max_len = tokens.stop_str_max_len;
        Unmeasured {
            request,
            ids: tokens.ids,
            text: Some(text),
        }
    }
}

impl Unmeasured {
    /// Checks that the tokens fit the context. With `allow_auto_truncate` it cuts them instead
    /// of failing.
    pub(super) fn fit(mut self, args: &ServerArgs) -> Result<Sendable, RequestError> {
        if self.ids.is_empty() {
            return Err(RequestError::invalid("the prompt has no tokens"));
        }
        rules::fit_context(&mut self.request, &mut self.ids, args)?;
        Ok(Sendable(self))
    }
}

impl Sendable {
    /// The message for the ring.
    pub(super) fn into_message(self) -> ToScheduler {
        let Unmeasured { request, ids, text } = self.0;
        let header = wire::generate(&request, text.as_deref());
        ToScheduler::with_ids(header, &ids)
    }
}

#[cfg(test)]
mod tests {
    use super::{Prompted, Untokenized, Validated};
    use crate::{
        channel::ToScheduler,
        config::{ModelConfig, ServerArgs},
        error::RequestError,
        ids::Rid,
        message::{GenerateRequest, Prompt},
        tokenizer::{AutoSpecials, Tokenized},
        wire,
    };

    /// A model with 100 tokens and a context of 10.
    fn args() -> ServerArgs {
        ServerArgs::of_model("m", ModelConfig::of_text(10, 100))
    }

    fn request(prompt: Prompt) -> Box<GenerateRequest> {
        let mut request = GenerateRequest::plain(Rid::whole("x".into()), prompt);
        request.sampling.max_new_tokens = Some(2);
        Box::new(request)
    }

    fn untokenized(text: &str, stop: &str) -> Untokenized {
        let mut request = request(Prompt::Text(text.into()));
        request.sampling.stop_strs = vec![stop.into()];
        let validated = Validated::check(request, &args()).unwrap();
        match validated.into_prompted() {
            Prompted::Text(untokenized) => untokenized,
            Prompted::Ids(_) => panic!("the prompt is text"),
        }
    }

    fn message_of_ids(ids: &[i32]) -> Result<ToScheduler, RequestError> {
        let validated = Validated::check(request(Prompt::Ids(ids.to_vec())), &args())?;
        match validated.into_prompted() {
            Prompted::Ids(unmeasured) => Ok(unmeasured.fit(&args())?.into_message()),
            Prompted::Text(_) => panic!("the prompt is tokens"),
        }
    }

    #[test]
    fn ids_are_sent_without_a_tokenizer() {
        let header = wire::generate(&request(Prompt::Ids(Vec::new())), None);
        let expected = ToScheduler::with_ids(header, &[1, 2]);
        assert_eq!(Ok(expected), message_of_ids(&[1, 2]));
    }

    #[test]
    fn each_check_can_refuse_ids() {
        for (ids, text) in [
            (vec![100], "invalid request: input_ids[0] is 100"),
            (vec![], "invalid request: the prompt has no tokens"),
            (vec![1; 10], "invalid request: the prompt has 10 tokens"),
        ] {
            let error = message_of_ids(&ids).unwrap_err().to_string();
            assert!(error.starts_with(text), "{error}");
        }
    }

    #[test]
    fn text_is_sent_with_its_tokens_and_the_longest_stop_string() {
        let untokenized = untokenized("hi", "stop");
        let job = untokenized.job(Box::new(|_| ()));
        assert_eq!(("hi", AutoSpecials::Added), (&*job.text, job.special));
        assert_eq!(vec!["stop"], job.stop_strs);
        let tokens = Tokenized {
            ids: vec![7, 8],
            stop_str_max_len: 3,
        };
        let message = untokenized.with_tokens(tokens).fit(&args()).unwrap();
        let mut expected = request(Prompt::Ids(Vec::new()));
        expected.sampling.stop_strs = vec!["stop".into()];
        expected.sampling.stop_str_max_len = 3;
        let header = wire::generate(&expected, Some("hi"));
        assert_eq!(
            ToScheduler::with_ids(header, &[7, 8]),
            message.into_message()
        );
    }
}
