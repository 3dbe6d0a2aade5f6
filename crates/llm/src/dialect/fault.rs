//! Decides whether the client or the upstream caused an error.
//!
//! The client caused an error if the same request can only fail again, until the client or its owner changes the
//! request, the key, the permissions or the account. Everything else is a failure of the upstream. A status of 429
//! always means the upstream, even if the account has no quota left: the alert on rate limits then fires.
//!
//! `docs/reference/outcomes.md` has the same table, with the sources.

/// What is known about an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorFacts<'a> {
    /// The provider of the call, as in `gen_ai.provider.name`.
    pub provider: Option<&'a str>,
    /// The HTTP status, if it is an error.
    pub status: Option<u16>,
    /// The provider's type or code of the error.
    pub kind: Option<&'a str>,
}

/// Errors that a status or a kind of error alone would attribute to the wrong side.
#[derive(Debug)]
struct Rule {
    /// Empty: any provider, because a gateway can hide the provider.
    providers: &'static [&'static str],
    /// `None`: any status, or none.
    status: Option<u16>,
    /// Empty: any kind, or none.
    kinds: &'static [&'static str],
    blames_client: bool,
}

const RULE: Rule = Rule { providers: &[], status: None, kinds: &[], blames_client: false };

/// The first rule that matches applies.
const RULES: &[Rule] = &[
    // SageMaker: the container responded with a status from 400 to 499.
    Rule { kinds: &["CLIENT_ERROR_FROM_MODEL"], blames_client: true, ..RULE },
    // AWS: the request can be repeated. Botocore retries these errors. JSON protocols send them with status 400.
    Rule {
        kinds: &[
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequestsException",
            "RequestLimitExceeded",
            "LimitExceededException",
            "ServiceQuotaExceededException",
            "ProvisionedThroughputExceededException",
            "SlowDown",
        ],
        ..RULE
    },
    // AWS: failures of the service or the model.
    Rule {
        kinds: &[
            "InternalFailure",
            "InternalServerException",
            "InternalDependencyException",
            "ServiceUnavailable",
            "ServiceUnavailableException",
            "ModelError",
            "ModelErrorException",
            "ModelStreamErrorException",
            "ModelTimeoutException",
            "ModelNotReadyException",
            "RequestTimeout",
            "RequestTimeoutException",
            "INTERNAL_FAILURE_FROM_MODEL",
        ],
        ..RULE
    },
    // A model that failed while it processed the request. Azure ML: the container did not respond with 200.
    Rule {
        providers: &["aws.bedrock", "aws.sagemaker", "tgi", "hugging_face", "azure.ai.inference"],
        status: Some(424),
        ..RULE
    },
    // TGI behind any provider.
    Rule { status: Some(424), kinds: &["generation"], ..RULE },
    // Groq: no capacity in the flex tier. Other providers use 498 for an invalid token.
    Rule { providers: &["groq"], status: Some(498), ..RULE },
    Rule { status: Some(498), kinds: &["capacity_exceeded"], ..RULE },
    // MiniMax: key, balance, content and parameters. All other codes are failures of the service.
    Rule {
        providers: &["minimax"],
        kinds: &["1004", "1008", "1026", "1027", "1042", "1043", "1044", "2013", "2049"],
        blames_client: true,
        ..RULE
    },
];

/// Kinds of errors that an API attributes to the client. Used where no HTTP status shows the cause: in streams, in
/// bodies with status 200, in batches of responses and in sessions.
const CLIENT_ERRORS: &[&str] = &[
    // OpenAI, Anthropic and most compatible APIs.
    "invalid_request_error",
    "invalid_request",
    "invalid_api_key",
    "invalid_prompt",
    "context_length_exceeded",
    "content_filter",
    "content_policy_violation",
    "model_not_found",
    // The account has no money. As a status: 402.
    "billing_error",
    "billing_not_active",
    "insufficient_balance",
    "insufficient_credits",
    // OpenAI Responses: images in the request.
    "invalid_image",
    "invalid_image_format",
    "invalid_image_mode",
    "invalid_image_url",
    "invalid_base64_image",
    "image_too_large",
    "image_too_small",
    "image_parse_error",
    "image_content_policy_violation",
    "image_file_too_large",
    "image_file_not_found",
    "unsupported_image_media_type",
    "empty_image_file",
    "failed_to_download_image",
    // Anthropic.
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    // vLLM and SGLang.
    "BadRequestError",
    "BadRequest",
    "NotFoundError",
    // TGI.
    "validation",
    // Google.
    "INVALID_ARGUMENT",
    "FAILED_PRECONDITION",
    "OUT_OF_RANGE",
    "UNAUTHENTICATED",
    "PERMISSION_DENIED",
    "NOT_FOUND",
    // DashScope.
    "InvalidParameter",
    "InvalidApiKey",
    "Arrearage",
    "DataInspectionFailed",
    "data_inspection_failed",
    // AWS, whose event streams write names with a small letter.
    "AccessDeniedException",
    "ResourceNotFoundException",
    "ValidationException",
];

impl Rule {
    fn matches(&self, error: ErrorFacts<'_>) -> bool {
        let has_provider = error.provider.is_some_and(|name| self.providers.contains(&name));
        let has_kind = error.kind.is_some_and(|kind| contains(self.kinds, kind));
        (self.providers.is_empty() || has_provider)
            && (self.status.is_none() || self.status == error.status)
            && (self.kinds.is_empty() || has_kind)
    }
}

impl ErrorFacts<'_> {
    /// Returns whether the client caused the error.
    ///
    /// A status from 500 on always means the upstream. The rules come next. Then the status decides, and without an
    /// error status the kind.
    pub fn blames_client(self) -> bool {
        if self.status.is_some_and(|status| status >= 500) {
            return false;
        }
        if let Some(rule) = RULES.iter().find(|rule| rule.matches(self)) {
            return rule.blames_client;
        }
        match (self.status, self.kind) {
            (Some(status), _) => is_client_status(status),
            (None, Some(kind)) => match kind.parse() {
                Ok(status) => is_client_status(status),
                Err(_) => contains(CLIENT_ERRORS, kind),
            },
            (None, None) => false,
        }
    }
}

/// Returns whether the client caused an error of this kind, if nothing else is known about the error.
pub fn blames_client(kind: &str) -> bool {
    ErrorFacts { kind: Some(kind), ..ErrorFacts::default() }.blames_client()
}

/// 408 and 429 do not count, because the upstream lacked time or capacity.
const fn is_client_status(status: u16) -> bool {
    matches!(status, 400..=499) && !matches!(status, 408 | 429)
}

fn contains(kinds: &[&str], kind: &str) -> bool {
    kinds.iter().any(|known| known.eq_ignore_ascii_case(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(provider: &str, status: u16, kind: &str) -> &'static str {
        let error = ErrorFacts {
            provider: Some(provider),
            status: Some(status).filter(|status| *status >= 400),
            kind: Some(kind).filter(|kind| !kind.is_empty()),
        };
        if error.blames_client() { "client" } else { "upstream" }
    }

    #[test]
    fn statuses_that_providers_define_as_their_own_failure() {
        for (provider, status, kind, expected) in [
            ("aws.sagemaker", 424, "", "upstream"),
            ("aws.sagemaker", 424, "INTERNAL_FAILURE_FROM_MODEL", "upstream"),
            ("aws.sagemaker", 424, "CLIENT_ERROR_FROM_MODEL", "client"),
            ("openai", 424, "CLIENT_ERROR_FROM_MODEL", "client"),
            ("aws.bedrock", 424, "ModelErrorException", "upstream"),
            ("openai", 424, "ModelErrorException", "upstream"),
            ("tgi", 424, "generation", "upstream"),
            ("openai", 424, "generation", "upstream"),
            // A tool server that the client named.
            ("openai", 424, "external_connector_error", "client"),
            ("groq", 424, "", "client"),
            ("groq", 498, "", "upstream"),
            ("openai", 498, "capacity_exceeded", "upstream"),
            ("cohere", 498, "", "client"),
            ("aws.bedrock", 400, "ThrottlingException", "upstream"),
            ("aws.bedrock", 400, "throttlingException", "upstream"),
            ("aws.bedrock", 400, "ServiceQuotaExceededException", "upstream"),
            ("aws.bedrock", 400, "ValidationException", "client"),
            ("aws.bedrock", 403, "AccessDeniedException", "client"),
        ] {
            assert_eq!(source(provider, status, kind), expected, "{provider} {status} {kind}");
        }
    }

    #[test]
    fn an_empty_account_is_of_the_client_unless_the_status_is_429() {
        for (provider, status, kind, expected) in [
            ("openai", 429, "insufficient_quota", "upstream"),
            ("openai", 429, "rate_limit_exceeded", "upstream"),
            ("deepseek", 402, "", "client"),
            ("anthropic", 402, "billing_error", "client"),
            ("alibaba", 400, "Arrearage", "client"),
            ("openai", 200, "insufficient_quota", "upstream"),
            ("openai", 200, "billing_not_active", "client"),
        ] {
            assert_eq!(source(provider, status, kind), expected, "{provider} {status} {kind}");
        }
    }

    #[test]
    fn other_statuses_follow_the_http_standard() {
        for (provider, status, kind, expected) in [
            ("anthropic", 529, "overloaded_error", "upstream"),
            ("openai", 500, "insufficient_quota", "upstream"),
            ("gcp.vertex_ai", 499, "CANCELLED", "client"),
            ("gcp.vertex_ai", 429, "RESOURCE_EXHAUSTED", "upstream"),
            ("azure.ai.openai", 400, "content_filter", "client"),
            ("azure.ai.openai", 408, "", "upstream"),
            ("mistral_ai", 422, "", "client"),
        ] {
            assert_eq!(source(provider, status, kind), expected, "{provider} {status} {kind}");
        }
    }

    #[test]
    fn the_kind_decides_in_a_successful_response() {
        for (provider, kind, expected) in [
            ("openai", "rate_limit_exceeded", "upstream"),
            ("openai", "image_too_large", "client"),
            ("openrouter", "402", "client"),
            ("openrouter", "502", "upstream"),
            ("minimax", "1004", "client"),
            ("minimax", "1008", "client"),
            ("minimax", "1002", "upstream"),
            ("aws.bedrock", "throttlingException", "upstream"),
            ("aws.bedrock", "validationException", "client"),
            ("deepseek", "insufficient_system_resource", "upstream"),
        ] {
            assert_eq!(source(provider, 200, kind), expected, "{provider} {kind}");
        }
    }
}
