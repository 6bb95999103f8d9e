//! The cargo that a process runs, for tasks and for tests that build something.

use std::process::Command;

/// Prefixes of the variables that tell a process its package.
const OF_A_PACKAGE: [&str; 2] = ["CARGO_MANIFEST_", "CARGO_PKG_"];

/// The cargo that runs this process, without the variables of its package: crates whose build scripts read them would be compiled again,
/// and files that other stages run be replaced.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if OF_A_PACKAGE.iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    cargo
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_package_is_told_to_cargo() {
        let own =
            std::env::vars().map(|(name, _)| name).filter(|name| name == "CARGO_MANIFEST_DIR");
        assert_eq!(own.count(), 1, "cargo tells a test its package");
        let cargo = cargo();
        let removed = |name| cargo.get_envs().any(|(key, value)| key == name && value.is_none());
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_NAME"));
        assert!(!removed("CARGO_HOME") && !removed("PATH"));
    }
}
