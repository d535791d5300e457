//! Checks whether the model can serve a generation, before and after tokenizing.
//!
//! Invariant: every token that reaches the scheduler is in the model's vocabulary, because the
//! embedding lookup fails for any other token. Every request fits the context.

use crate::{
    config::ServerArgs,
    error::RequestError,
    message::{GenerateRequest, Prompt},
};

/// Checks the request without the tokens of its text.
pub(super) fn check_request(
    request: &GenerateRequest,
    args: &ServerArgs,
) -> Result<(), RequestError> {
    let vocab_size = args.model_config.vocab_size;
    match &request.prompt {
        Prompt::Text(_) if args.skip_tokenizer_init => {
            let message = "this server has no tokenizer: send `input_ids` instead of `text`";
            return Err(RequestError::field("text", message));
        }
        Prompt::Text(_) => {}
        Prompt::Ids(ids) => check_vocabulary("input_ids", ids, vocab_size)?,
    }
    if let Some(ids) = &request.token_ids_logprob {
        check_vocabulary("token_ids_logprob", ids, vocab_size)?;
    }
    if request.top_logprobs_num > vocab_size {
        let asked = request.top_logprobs_num;
        let message =
            format!("`top_logprobs_num` is {asked}, but this model has {vocab_size} tokens");
        return Err(RequestError::field("top_logprobs_num", message));
    }
    if request.return_hidden_states && !args.enable_return_hidden_states {
        let message = "this server does not return hidden states";
        return Err(RequestError::field("return_hidden_states", message));
    }
    request.sampling.check_vocab(vocab_size)?;
    if args.skip_tokenizer_init {
        request.sampling.check_without_tokenizer()?;
    }
    Ok(())
}

fn check_vocabulary(field: &str, ids: &[i32], vocab_size: i64) -> Result<(), RequestError> {
    let outside = |id: &i32| !(0..vocab_size).contains(&i64::from(*id));
    match ids.iter().position(outside) {
        None => Ok(()),
        Some(at) => {
            let id = ids[at];
            let message = format!(
                "{field}[{at}] is {id}: this model has tokens 0 to {}",
                vocab_size - 1
            );
            Err(RequestError::field(field, message))
        }
    }
}

/// Checks that `ids` and the tokens to generate fit the context. With `allow_auto_truncate`
/// it cuts both instead of failing.
pub(super) fn fit_context(
    request: &mut GenerateRequest,
    ids: &mut Vec<i32>,
    args: &ServerArgs,
) -> Result<(), RequestError> {
    let (context, reserved) = (args.model_config.context_len, args.num_reserved_tokens);
    let may_cut = args.allow_auto_truncate;
    if ids.len() as i64 + reserved >= context {
        if !may_cut {
            let tokens = ids.len();
            return Err(too_long(format!(
                "the prompt has {tokens} tokens{}, and the model's context is {context}: shorten it",
                plus(reserved),
            )));
        }
        ids.truncate(usize::try_from(context - reserved).unwrap_or(0));
    }
    let input = ids.len() as i64 + reserved;
    let Some(max_new) = request.sampling.max_new_tokens else {
        return Ok(());
    };
    if input.saturating_add(max_new) <= context {
        return Ok(());
    }
    if !may_cut {
        let tokens = ids.len();
        return Err(too_long(format!(
            "the prompt has {tokens} tokens{}, and {max_new} more are asked for, but the model's context is {context}: \
             shorten the prompt or lower `max_new_tokens`",
            plus(reserved),
        )));
    }
    let left = (context - input).max(0);
    if request.sampling.min_new_tokens > left {
        let min_new = request.sampling.min_new_tokens;
        let message = format!(
            "`min_new_tokens` is {min_new}, but only {left} fit the model's context of {context}"
        );
        return Err(too_long(message));
    }
    request.sampling.max_new_tokens = Some(left);
    Ok(())
}

fn plus(reserved: i64) -> String {
    match reserved {
        0 => String::new(),
        reserved => format!(" plus {reserved} reserved"),
    }
}

fn too_long(message: String) -> RequestError {
    RequestError::Invalid {
        message,
        param: None,
        code: "context_length_exceeded",
    }
}

#[cfg(test)]
mod tests {
    use super::{check_request, fit_context};
    use crate::{
        config::{ModelConfig, ServerArgs},
        error::RequestError,
        ids::Rid,
        message::{GenerateRequest, Prompt},
    };

    /// A model with 100 tokens and a context of 10.
    fn args() -> ServerArgs {
        ServerArgs::of_model("m", ModelConfig::of_text(10, 100))
    }

    fn request() -> GenerateRequest {
        GenerateRequest::plain(Rid::mint(), Prompt::Ids(vec![1]))
    }

    // Long: one table with every case.
    #[test]
    fn a_request_that_the_model_cannot_serve_is_refused() {
        let with = |change: &dyn Fn(&mut GenerateRequest, &mut ServerArgs)| {
            let (mut request, mut args) = (request(), args());
            change(&mut request, &mut args);
            check_request(&request, &args).map_err(|error| match error {
                RequestError::Invalid { message, param, .. } => (param.unwrap(), message),
                other => panic!("{other:?}"),
            })
        };
        let refused = |field: &str, message: &str| Err((field.to_owned(), message.to_owned()));
        assert_eq!(Ok(()), with(&|_, _| ()));
        assert_eq!(
            Ok(()),
            with(&|request, _| request.prompt = Prompt::Text("x".into()))
        );
        assert_eq!(
            Ok(()),
            with(&|request, _| request.prompt = Prompt::Ids(vec![0, 99]))
        );
        let ids = with(&|request, _| request.prompt = Prompt::Ids(vec![5, 100]));
        assert_eq!(
            refused(
                "input_ids",
                "input_ids[1] is 100: this model has tokens 0 to 99"
            ),
            ids
        );
        let ids = with(&|request, _| request.prompt = Prompt::Ids(vec![-1]));
        assert_eq!(
            refused(
                "input_ids",
                "input_ids[0] is -1: this model has tokens 0 to 99"
            ),
            ids
        );
        let ids = with(&|request, _| request.token_ids_logprob = Some(vec![1, 2, 100]));
        let message = "token_ids_logprob[2] is 100: this model has tokens 0 to 99";
        assert_eq!(refused("token_ids_logprob", message), ids);
        assert_eq!(Ok(()), with(&|request, _| request.top_logprobs_num = 100));
        let top = with(&|request, _| request.top_logprobs_num = 101);
        let message = "`top_logprobs_num` is 101, but this model has 100 tokens";
        assert_eq!(refused("top_logprobs_num", message), top);
        let hidden = with(&|request, _| request.return_hidden_states = true);
        let message = "this server does not return hidden states";
        assert_eq!(refused("return_hidden_states", message), hidden);
        let allowed = with(&|request, args| {
            request.return_hidden_states = true;
            args.enable_return_hidden_states = true;
        });
        assert_eq!(Ok(()), allowed);
        let text = with(&|request, args| {
            request.prompt = Prompt::Text("x".into());
            args.skip_tokenizer_init = true;
        });
        let message = "this server has no tokenizer: send `input_ids` instead of `text`";
        assert_eq!(refused("text", message), text);
        let stop = with(&|request, args| {
            request.sampling.stop_strs = vec!["x".into()];
            args.skip_tokenizer_init = true;
        });
        assert!(stop.is_err());
    }

    // Long: one table with every case.
    #[test]
    fn prompts_and_answers_fit_the_context() {
        type Case<'a> = (&'a str, usize, Option<i64>, i64, i64, bool, Sent<'a>);
        /// The number of prompt tokens and `max_new_tokens` as sent, or how the error begins.
        type Sent<'a> = Result<(usize, Option<i64>), &'a str>;
        #[rustfmt::skip]
        let cases: &[Case<'_>] = &[
            // name                    tokens max_new  min_new reserved may_cut sent
            ("fits",                        4, Some(6),     0, 0, false, Ok((4, Some(6)))),
            ("one token too many",          4, Some(7),     0, 0, false, Err("the prompt has 4 tokens, and 7 more are asked for, but the model's context is 10")),
            ("no limit is given",           4, None,        0, 0, false, Ok((4, None))),
            ("prompt fills the context",   10, None,        0, 0, false, Err("the prompt has 10 tokens, and the model's context is 10")),
            ("prompt leaves one token",     9, Some(1),     0, 0, false, Ok((9, Some(1)))),
            ("reserved tokens count",       4, Some(5),     0, 2, false, Err("the prompt has 4 tokens plus 2 reserved, and 5 more")),
            ("reserved tokens fill it",     8, None,        0, 2, false, Err("the prompt has 8 tokens plus 2 reserved, and the model's")),
            ("answer is cut",               4, Some(7),     0, 0, true,  Ok((4, Some(6)))),
            ("prompt is cut",              12, Some(3),     0, 0, true,  Ok((10, Some(0)))),
            ("prompt is cut for reserved", 12, None,        0, 2, true,  Ok((8, None))),
            ("minimum does not fit",        4, Some(9),     7, 0, true,  Err("`min_new_tokens` is 7, but only 6 fit")),
            ("minimum just fits",           4, Some(9),     6, 0, true,  Ok((4, Some(6)))),
            ("sum does not overflow",       4, Some(i64::MAX), 0, 0, true, Ok((4, Some(6)))),
        ];
        for (name, tokens, max_new, min_new, reserved, may_cut, expected) in cases {
            let mut args = args();
            args.num_reserved_tokens = *reserved;
            args.allow_auto_truncate = *may_cut;
            let mut request = request();
            request.sampling.max_new_tokens = *max_new;
            request.sampling.min_new_tokens = *min_new;
            let mut ids = vec![1; *tokens];
            match (fit_context(&mut request, &mut ids, &args), expected) {
                (Ok(()), Ok(sent)) => {
                    assert_eq!(
                        *sent,
                        (ids.len(), request.sampling.max_new_tokens),
                        "{name}"
                    );
                }
                (Err(RequestError::Invalid { message, code, .. }), Err(beginning)) => {
                    assert!(message.starts_with(beginning), "{name}: {message}");
                    assert_eq!("context_length_exceeded", code, "{name}");
                }
                (got, _) => panic!("{name}: {got:?}"),
            }
        }
    }
}
