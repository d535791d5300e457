//! The prompts of a call and their names.

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

/// Most bytes of the name that a client gives a request.
const MAX_NAME: usize = 128;

/// The prompts, which `text` or `input_ids` has, and whether they came as a list.
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

/// Every prompt of a column, none of which may be missing.
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

/// The client's name of each prompt, where it has one.
pub(super) fn names(
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
        Column::One(name) if is_list => {
            // Checked as it will be: the longest of them is the last.
            check_name(|| "rid".to_owned(), &format!("{name}_{}", prompts - 1))?;
            Ok((0..prompts).map(|i| Some(format!("{name}_{i}"))).collect())
        }
        Column::One(name) => {
            check_name(|| "rid".to_owned(), &name)?;
            Ok(vec![Some(name)])
        }
        Column::Many(names) => {
            check_names(&names)?;
            Ok(names)
        }
    }
}

/// Checks every name, and that no two are the same.
fn check_names(names: &[Option<String>]) -> Result<(), RequestError> {
    let mut seen = HashSet::new();
    for (i, name) in names.iter().enumerate() {
        let Some(name) = name else { continue };
        let path = || format!("rid[{i}]");
        check_name(path, name)?;
        if !seen.insert(name) {
            let message = format!("`{}` is the name of another prompt of this call", path());
            return Err(RequestError::field(path(), message));
        }
    }
    Ok(())
}

fn check_name(path: impl Fn() -> String, name: &str) -> Result<(), RequestError> {
    let problem = if name.len() > MAX_NAME {
        format!(
            "is {} bytes long; at most {MAX_NAME} are allowed",
            name.len()
        )
    } else if name.starts_with(HEALTH_CHECK_PREFIX) {
        // The scheduler drops those at will.
        format!("begins with `{HEALTH_CHECK_PREFIX}`, which is kept for health checks")
    } else {
        return Ok(());
    };
    Err(RequestError::field(
        path(),
        format!("`{}` {problem}", path()),
    ))
}
