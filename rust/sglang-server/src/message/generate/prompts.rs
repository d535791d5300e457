//! The prompts of a call and their request ids.

use std::collections::HashSet;

use super::{column::Column, limits::BatchLimit};
use crate::{
    error::RequestError,
    ids::HEALTH_CHECK_PREFIX,
    message::{
        Prompt,
        json::{Path, Scalar, mismatch},
    },
};

/// Maximum length in bytes of a request id from a client.
const MAX_RID_BYTES: usize = 128;

/// The prompts from `text` or `input_ids`, and whether they were given as a list.
pub(super) fn prompts(
    text: Column<String>,
    input_ids: Column<Vec<i32>>,
    limit: BatchLimit,
) -> Result<(Vec<Prompt>, bool), RequestError> {
    match (text, input_ids) {
        (Column::Absent, Column::Absent) => {
            let message = "there is no prompt; send `text` or `input_ids`";
            Err(RequestError::invalid(message))
        }
        (text, Column::Absent) => {
            let (texts, is_list) = rows("text", text, "a string", limit)?;
            Ok((texts.into_iter().map(Prompt::Text).collect(), is_list))
        }
        (Column::Absent, ids) => {
            let (ids, is_list) = rows("input_ids", ids, "a list of integers", limit)?;
            check_not_empty(&ids, is_list)?;
            Ok((ids.into_iter().map(Prompt::Ids).collect(), is_list))
        }
        _ => {
            let message = "`input_ids` and `text` are both prompts; send one of them";
            Err(RequestError::field("input_ids", message))
        }
    }
}

/// All prompts of a column. A missing prompt is an error.
fn rows<T>(
    field: &str,
    column: Column<T>,
    expected: &str,
    limit: BatchLimit,
) -> Result<(Vec<T>, bool), RequestError> {
    let rows = match column {
        Column::Absent => Vec::new(),
        Column::One(prompt) => return Ok((vec![prompt], false)),
        Column::Many(rows) => rows,
    };
    limit.check(field, rows.len())?;
    if rows.is_empty() {
        let message = format!("`{field}` is an empty list; send at least one prompt");
        return Err(RequestError::field(field, message));
    }
    let list = Path::Body.key(field);
    let present = |(i, row): (usize, Option<T>)| {
        row.ok_or_else(|| mismatch(&list.index(i), expected, &Scalar::Null))
    };
    let rows = rows.into_iter().enumerate().map(present);
    Ok((rows.collect::<Result<_, _>>()?, true))
}

fn check_not_empty(prompts: &[Vec<i32>], is_list: bool) -> Result<(), RequestError> {
    let Some(i) = prompts.iter().position(Vec::is_empty) else {
        return Ok(());
    };
    let path = if is_list {
        format!("input_ids[{i}]")
    } else {
        "input_ids".to_owned()
    };
    let message = format!("`{path}` is empty; a prompt has at least one token");
    Err(RequestError::field(path, message))
}

/// The client's request id of each prompt, if it gave one.
pub(super) fn client_rids(
    rid: Column<String>,
    prompts: usize,
    is_list: bool,
) -> Result<Vec<Option<String>>, RequestError> {
    if !is_list && matches!(rid, Column::Many(_)) {
        let message = "`rid` is a list, but there is one prompt; send a string";
        return Err(RequestError::field("rid", message));
    }
    rid.check_len("rid", prompts)?;
    match rid {
        Column::Absent => Ok(vec![None; prompts]),
        Column::One(rid) if is_list => {
            // Check the last one: its suffix is the longest.
            check_rid(|| "rid".to_owned(), &format!("{rid}_{}", prompts - 1))?;
            Ok((0..prompts).map(|i| Some(format!("{rid}_{i}"))).collect())
        }
        Column::One(rid) => {
            check_rid(|| "rid".to_owned(), &rid)?;
            Ok(vec![Some(rid)])
        }
        Column::Many(rids) => {
            check_rids(&rids)?;
            Ok(rids)
        }
    }
}

/// Checks every request id, and that all are different.
fn check_rids(rids: &[Option<String>]) -> Result<(), RequestError> {
    let mut seen = HashSet::new();
    for (i, rid) in rids.iter().enumerate() {
        let Some(rid) = rid else { continue };
        let path = || format!("rid[{i}]");
        check_rid(path, rid)?;
        if !seen.insert(rid) {
            let message = format!("`{}` repeats the id of another prompt of this call", path());
            return Err(RequestError::field(path(), message));
        }
    }
    Ok(())
}

fn check_rid(path: impl Fn() -> String, rid: &str) -> Result<(), RequestError> {
    let problem = if rid.len() > MAX_RID_BYTES {
        format!(
            "is {} bytes long; at most {MAX_RID_BYTES} are allowed",
            rid.len()
        )
    } else if rid.starts_with(HEALTH_CHECK_PREFIX) {
        // The scheduler may drop requests with this prefix.
        format!("begins with `{HEALTH_CHECK_PREFIX}`, which is reserved for health checks")
    } else {
        return Ok(());
    };
    Err(RequestError::field(
        path(),
        format!("`{}` {problem}", path()),
    ))
}
