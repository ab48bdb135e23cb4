//! Advice for a user whose call failed.

use gristmill_client::{ClientError, is_loopback};

/// The error with the options of a command in place of the parameters, and the conditions of a
/// filter, that the host names.
pub fn in_options(mut error: ClientError, options: &[(&str, &str)]) -> ClientError {
    if let ClientError::Refused(refusal) = &mut error
        && let Some(message) = &mut refusal.message
    {
        for (parameter, option) in options {
            let option = format!("`{option}`");
            *message = message
                .replace(&format!("query `{parameter}`"), &option)
                .replace(&format!("`filter.{parameter}`"), &option)
                .replace(&format!("`{parameter}`"), &option);
        }
    }
    error
}

/// The error in words, with the next step if there is one.
pub fn describe(error: &anyhow::Error) -> String {
    let advice = error.downcast_ref::<ClientError>().and_then(advice);
    match advice {
        Some(advice) => format!("{error:#}; {advice}"),
        None => format!("{error:#}"),
    }
}

fn advice(error: &ClientError) -> Option<&'static str> {
    match error {
        ClientError::Unreachable { is_refused: true, .. } => {
            Some("start one with `gristmill serve`")
        }
        ClientError::Unreachable { is_untrusted: true, .. } => {
            Some("name its authority with --ca-cert")
        }
        ClientError::Refused(refusal) if refusal.status == 401 && !refusal.had_key => {
            Some(if is_loopback(&refusal.host) {
                "set GRISTMILL_API_KEY, or name the host's data directory with --data-dir so that \
                 its admin.key is found"
            } else {
                "set GRISTMILL_API_KEY"
            })
        }
        ClientError::Unreachable { .. }
        | ClientError::Refused(_)
        | ClientError::Interrupted(_)
        | ClientError::Garbled(_)
        | ClientError::Unsendable(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use gristmill_client::Refusal;

    use super::*;

    fn unauthorized(host: &str, had_key: bool) -> anyhow::Error {
        let message = Some("no API key: send the header".to_owned());
        let host = host.parse().unwrap();
        let refusal =
            Refusal { host, status: 401, code: None, message, retry_after: None, had_key };
        ClientError::Refused(Box::new(refusal)).into()
    }

    #[test]
    fn a_user_without_a_key_reads_where_to_put_one() {
        let local = unauthorized("http://127.0.0.1:8080/", false);
        assert!(describe(&local).contains("the host wants an API key; set GRISTMILL_API_KEY, or"));
        let remote = unauthorized("https://example.com", false).context("case `a`");
        assert_eq!(describe(&remote), "case `a`: the host wants an API key; set GRISTMILL_API_KEY");
        let wrong = unauthorized("https://example.com", true);
        assert_eq!(describe(&wrong), "no API key: send the header");
    }

    #[test]
    fn a_refusal_names_the_options_of_the_command() {
        let message = "query `startTime` must be before `endTime`; `recursive=true` is none";
        let refusal = Refusal {
            host: "http://127.0.0.1:8080/".parse().unwrap(),
            status: 400,
            code: None,
            message: Some(message.to_owned()),
            retry_after: None,
            had_key: true,
        };
        let options =
            [("startTime", "--from"), ("endTime", "--to"), ("recursive=true", "--recursive")];
        let error = in_options(ClientError::Refused(Box::new(refusal)), &options);
        assert_eq!(error.to_string(), "`--from` must be before `--to`; `--recursive` is none");
    }

    #[test]
    fn other_errors_are_shown_with_their_causes() {
        let error = Err::<(), _>(std::io::Error::other("no space")).context("cannot write a");
        assert_eq!(describe(&error.unwrap_err()), "cannot write a: no space");
    }
}
