//! The runbooks of the alerts. They are embedded, so that links in alerts work without another server.

macro_rules! runbooks {
    ($($name:literal,)*) => {
        [$(($name, include_str!(concat!("../../docs/runbooks/", $name, ".md"))),)*]
    };
}

/// Names and Markdown text of all runbooks.
const RUNBOOKS: [(&str, &str); 31] = runbooks![
    "LLMBudgetForecastExceeded",
    "LLMClientErrors",
    "LLMCostSpike",
    "LLMCredentialsRejected",
    "LLMErrorBudgetBurnFast",
    "LLMErrorBudgetBurnSlow",
    "LLMModelFailing",
    "LLMModelStalled",
    "LLMOutputTPSAnomaly",
    "LLMOutputTPSDrop",
    "LLMProviderDown",
    "LLMProviderErrors",
    "LLMQueueGrowing",
    "LLMRateLimitNear",
    "LLMRateLimited",
    "LLMRequestsCancelled",
    "LLMSLOTooFewEvents",
    "LLMStreamsStalled",
    "LLMStreamsTruncated",
    "LLMTTFTDegraded",
    "LLMThroughputCollapse",
    "LLMTokenCountMismatch",
    "LLMVariantFasterButWorse",
    "LLMWorkloadDrift",
    "README",
    "TokengaugeExportFailing",
    "TokengaugeMemoryNearLimit",
    "TokengaugeObserverDropping",
    "TokengaugeParseErrors",
    "TokengaugeTelemetryAbsent",
    "whose-fault",
];

/// Returns the runbook at a path such as `/runbooks/NAME` or `/runbooks/NAME.md`. The path `/runbooks/` returns the
/// list of runbooks.
pub fn runbook(path: &str) -> Option<&'static str> {
    let name = path.strip_prefix("/runbooks/")?;
    let name = name.strip_suffix(".md").unwrap_or(name);
    let name = if name.is_empty() { "README" } else { name };
    RUNBOOKS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_every_runbook_of_the_repository() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/runbooks");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().to_string_lossy().replace(".md", ""))
            .collect();
        files.sort();
        assert_eq!(RUNBOOKS.map(|(name, _)| name), files.as_slice());
    }

    #[test]
    fn finds_a_runbook_by_its_path() {
        let down = runbook("/runbooks/LLMProviderDown").unwrap();
        assert!(down.starts_with("# LLMProviderDown"), "{down}");
        assert_eq!(runbook("/runbooks/LLMProviderDown.md"), Some(down));
        assert!(runbook("/runbooks/").unwrap().contains("LLMProviderDown"));
        assert_eq!(runbook("/runbooks/../README"), None);
        assert_eq!(runbook("/runbooks"), None);
    }
}
