//! The operator's brand in the names of a template's field and of a query's flag.

/// The brand in the neutral field names, which always exist.
pub(crate) const NEUTRAL: &str = "Platform";

/// The field under `brand` that is true for the operator's own templates.
pub(crate) fn branded_field(brand: &str) -> String {
    format!("is{brand}")
}

/// The query that includes the operator's own templates, in its neutral spelling.
pub(crate) const PLATFORM_FLAG: &str = "includePlatformTemplates";

/// The query that includes the operator's own templates, under `brand`.
pub(crate) fn branded_flag(brand: &str) -> String {
    format!("include{brand}Templates")
}
