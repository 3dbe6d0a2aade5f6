//! The runbooks of the alerts and the pages to which they link. They are embedded, so that links in alerts and runbooks
//! work without another server.

macro_rules! runbooks {
    ($($name:literal,)*) => {
        [$(($name, include_str!(concat!("../../docs/runbooks/", $name, ".md"))),)*]
    };
}

/// Names and Markdown text of all runbooks.
const RUNBOOKS: [(&str, &str); 34] = runbooks![
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
    "LLMReplicaDeviating",
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
    "TokengaugeCertificateExpiring",
    "TokengaugeConfigReloadFailing",
    "TokengaugeExportFailing",
    "TokengaugeMemoryNearLimit",
    "TokengaugeObserverDropping",
    "TokengaugeParseErrors",
    "TokengaugeTelemetryAbsent",
    "whose-fault",
];

macro_rules! pages {
    ($($path:literal = $file:literal,)*) => {
        [$(($path, include_str!(concat!("../../", $file))),)*]
    };
}

/// Paths and text of the pages to which runbooks link. Their paths have the same position relative to `/runbooks/` as the
/// files have, so that the links need no change.
const LINKED: [(&str, &str); 12] = pages![
    "/alerts/values.yaml" = "alerts/values.yaml",
    "/explanation/definitions.md" = "docs/explanation/definitions.md",
    "/explanation/drift.md" = "docs/explanation/drift.md",
    "/explanation/queues.md" = "docs/explanation/queues.md",
    "/how-to/cost.md" = "docs/how-to/cost.md",
    "/how-to/reports.md" = "docs/how-to/reports.md",
    "/how-to/slos.md" = "docs/how-to/slos.md",
    "/reference/admin-api.md" = "docs/reference/admin-api.md",
    "/reference/configuration.md" = "docs/reference/configuration.md",
    "/reference/engine-metrics.md" = "docs/reference/engine-metrics.md",
    "/reference/outcomes.md" = "docs/reference/outcomes.md",
    "/reference/telemetry.md" = "docs/reference/telemetry.md",
];

/// Returns the page at a path to which a runbook links, such as `/how-to/slos.md`.
pub fn linked_page(path: &str) -> Option<&'static str> {
    LINKED.iter().find(|(known, _)| *known == path).map(|(_, text)| *text)
}

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

    /// Follows a relative link as a browser does, and returns the path.
    fn target(page: &str, link: &str) -> String {
        let mut segments: Vec<&str> = page.split('/').skip(1).collect();
        segments.pop();
        for segment in link.split('/') {
            match segment {
                ".." => drop(segments.pop()),
                "." => {}
                name => segments.push(name),
            }
        }
        format!("/{}", segments.join("/"))
    }

    #[test]
    fn every_link_of_a_runbook_leads_to_a_page() {
        let mut links = 0;
        let mut used = std::collections::BTreeSet::new();
        for (name, text) in RUNBOOKS {
            for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let link = link.split('#').next().unwrap_or_default();
                if link.is_empty() || link.contains("://") {
                    continue;
                }
                let path = target(&format!("/runbooks/{name}"), link);
                assert!(runbook(&path).or(linked_page(&path)).is_some(), "{name}: {link}");
                links += 1;
                used.insert(path);
            }
        }
        assert!(links > 100, "{links}");
        assert!(LINKED.iter().all(|(path, _)| used.contains(*path)), "{used:?}");
        assert_eq!(linked_page("/how-to/kubernetes.md"), None);
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
