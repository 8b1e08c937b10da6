//! Numbers for people.

pub use potable_manifests::grouped;

/// Bytes in a unit that fits: `1.4 GB`.
pub fn bytes(value: u64) -> String {
    let units = ["B", "kB", "MB", "GB", "TB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 999.5 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or("B");
    if unit == 0 { format!("{value} {name}") } else { format!("{scaled:.1} {name}") }
}

/// Parts per million as percent: `98.7 %`.
pub fn percent(ppm: u64) -> String {
    format!("{:.1} %", ppm as f64 / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_people_write_them() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1234567), "1,234,567");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_500_000), "1.5 MB");
        assert_eq!(percent(987_123), "98.7 %");
    }
}
