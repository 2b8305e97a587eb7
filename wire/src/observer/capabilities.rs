//! How well each category can be observed here.

use serde::{Deserialize, Serialize};

use super::{CapabilitySupport, EventCategory, ObserverBackend, TraceScope};

/// What can be observed within a scope: one cell for each category.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ObserverCapabilities {
    /// How far it looks.
    pub scope: TraceScope,
    /// In the order of [`EventCategory::ALL`].
    pub categories: Vec<CategoryCapability>,
}

/// How well one category can be observed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CategoryCapability {
    /// Which.
    pub category: EventCategory,
    /// How well.
    pub support: CapabilitySupport,
    /// By what means, if at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<ObserverBackend>,
    /// Why no better, and what would enable that; empty where it is exact.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is not seen, or not to be had by who is observed, by stable names: `io_uring`, `sampled`, `debugger`, …
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<String>,
}

impl CategoryCapability {
    /// A category seen exactly.
    pub fn supported(category: EventCategory, backend: ObserverBackend) -> Self {
        let support = CapabilitySupport::Supported;
        Self { category, support, backend: Some(backend), reason: String::new(), gaps: Vec::new() }
    }

    /// A category seen with gaps.
    pub fn partial(
        category: EventCategory,
        backend: ObserverBackend,
        reason: impl Into<String>,
        gaps: Vec<String>,
    ) -> Self {
        let support = CapabilitySupport::Partial;
        Self { category, support, backend: Some(backend), reason: reason.into(), gaps }
    }

    /// A category that is not seen, and why.
    pub fn unavailable(category: EventCategory, reason: impl Into<String>) -> Self {
        let support = CapabilitySupport::Unavailable;
        Self { category, support, backend: None, reason: reason.into(), gaps: Vec::new() }
    }

    /// Its row of the table; the last column holds the reason and the gaps.
    fn to_row(&self) -> [String; 4] {
        let backend = self.backend.map_or("-", ObserverBackend::as_str);
        let gaps = (!self.gaps.is_empty()).then(|| format!("gaps: {}", self.gaps.join(", ")));
        let reason = Some(self.reason.clone()).filter(|reason| !reason.is_empty());
        let why: Vec<String> = reason.into_iter().chain(gaps).collect();
        [self.category.to_string(), self.support.to_string(), backend.to_owned(), why.join("; ")]
    }
}

impl ObserverCapabilities {
    /// The cell of a category.
    pub fn category(&self, category: EventCategory) -> Option<&CategoryCapability> {
        self.categories.iter().find(|cell| cell.category == category)
    }

    /// How well a category can be observed; one that is not listed cannot be.
    pub fn support(&self, category: EventCategory) -> CapabilitySupport {
        self.category(category).map_or(CapabilitySupport::Unavailable, |cell| cell.support)
    }

    /// Whether a category is seen exactly.
    pub fn is_supported(&self, category: EventCategory) -> bool {
        self.support(category) == CapabilitySupport::Supported
    }

    /// A row for each category: its name, its support, the backend (`-`: none), and why it is no better.
    pub fn to_table_rows(&self) -> Vec<[String; 4]> {
        self.categories.iter().map(CategoryCapability::to_row).collect()
    }

    /// The table as text: a title, then a line for each row.
    pub fn render_summary(&self) -> String {
        let rows = self.to_table_rows();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let [first, second, third] = [width(0), width(1), width(2)];
        let mut summary = format!("observer capabilities (scope={}):\n", self.scope);
        for [category, support, backend, why] in &rows {
            let row = format!("  {category:first$}  {support:second$}  {backend:third$}  {why}");
            summary.push_str(row.trim_end());
            summary.push('\n');
        }
        summary
    }
}
