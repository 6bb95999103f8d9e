//! Makes the typed settings and the list of them from the same lines.

/// The structs, with their defaults, and the list as data.
///
/// A line is `name: Type = default, "what it does", [attributes];`. Without a default, it's that of the type. The
/// attributes are the builder methods of [`Setting`](super::Setting).
macro_rules! settings {
    (
        $(#[$doc:meta])*
        pub struct $settings:ident, $list:ident, $tables:ident;
        $(
            $(#[$table_doc:meta])*
            $table:ident $title:literal => $struct:ident {
                $(
                    $name:ident: $type:ty $(= $default:expr)?, $help:literal
                    $(, [$($attribute:ident($($argument:expr),*)),*])?;
                )*
            }
        )*
    ) => {
        $(
            $(#[$table_doc])*
            #[derive(Clone, Debug, PartialEq)]
            pub struct $struct {
                $(#[doc = concat!($help, ".")] pub $name: $type,)*
            }

            impl Default for $struct {
                fn default() -> Self {
                    Self { $($name: settings!(@default $($default)?),)* }
                }
            }
        )*

        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        pub struct $settings {
            $($(#[$table_doc])* pub $table: $struct,)*
            pub(super) origins: super::origin::Origins,
        }

        /// Every setting, in the order of the tables and keys in a settings file.
        pub static $list: &[super::Setting] = &[
            $($(
                super::Setting::new(
                    concat!(stringify!($table), ".", stringify!($name)),
                    <$type as super::SettingValue>::KIND,
                    $help,
                    || {
                        let default: $type = settings!(@default $($default)?);
                        super::SettingValue::write(&default).ok().flatten()
                    },
                )
                $($(.$attribute($($argument),*))*)?,
            )*)*
        ];

        /// The tables in order, each with its title.
        pub static $tables: &[(&str, &str)] = &[$((stringify!($table), $title)),*];

        impl $settings {
            /// The value of the setting of this key, as a settings file has it; `None` where it isn't set, or for
            /// a key that isn't listed.
            ///
            /// # Errors
            /// A value that TOML can't hold.
            pub fn value(&self, key: &str) -> Result<Option<toml::Value>, super::Unwritable> {
                match key {
                    $($(
                        concat!(stringify!($table), ".", stringify!($name)) => {
                            super::SettingValue::write(&self.$table.$name)
                        }
                    )*)*
                    _ => Ok(None),
                }
            }

            /// Sets the setting of this key to an accepted value. Returns whether it is one.
            pub(super) fn assign(&mut self, key: &str, value: &toml::Value) -> bool {
                match key {
                    $($(
                        concat!(stringify!($table), ".", stringify!($name)) => {
                            super::SettingValue::read(value)
                                .map(|value| self.$table.$name = value)
                                .is_some()
                        }
                    )*)*
                    _ => false,
                }
            }
        }
    };
    (@default) => {
        Default::default()
    };
    (@default $default:expr) => {
        $default
    };
}

pub(super) use settings;
