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
            pub(crate) origins: $crate::settings::origin::Origins,
        }

        /// Every setting, in the order of the tables and keys in a settings file.
        pub static $list: &[$crate::settings::Setting] = &[
            $($(
                $crate::settings::Setting::new(
                    concat!(stringify!($table), ".", stringify!($name)),
                    <$type as $crate::settings::SettingValue>::KIND,
                    $help,
                    || {
                        let default: $type = settings!(@default $($default)?);
                        $crate::settings::SettingValue::write(&default).ok().flatten()
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
            pub fn value(&self, key: &str) -> Result<Option<toml::Value>, $crate::settings::Unwritable> {
                match key {
                    $($(
                        concat!(stringify!($table), ".", stringify!($name)) => {
                            $crate::settings::SettingValue::write(&self.$table.$name)
                        }
                    )*)*
                    _ => Ok(None),
                }
            }

            /// Sets the setting of this key to its value in `other`.
            pub(crate) fn copy(&mut self, key: &str, other: &Self) {
                match key {
                    $($(
                        concat!(stringify!($table), ".", stringify!($name)) => {
                            self.$table.$name.clone_from(&other.$table.$name);
                        }
                    )*)*
                    _ => {}
                }
            }

            /// Sets the setting of this key to an accepted value. Returns whether it is one.
            pub(crate) fn assign(&mut self, key: &str, value: &toml::Value) -> bool {
                match key {
                    $($(
                        concat!(stringify!($table), ".", stringify!($name)) => {
                            $crate::settings::SettingValue::read(value)
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

#[cfg(test)]
mod tests {
    use crate::settings::{LIST, Range, json_schema, typescript};

    settings! {
        /// Settings with one line more.
        pub struct Longer, LONGER, TABLES;

        /// The optimization.
        train "Training" => Train {
            sharpness: Option<f64>, "How sharp", [within(Range::Fraction), unset("not sharp"), flag("sharpness", "X"), page("Sharpness"), page_empty("not sharp")];
        }
    }

    #[test]
    fn one_line_is_a_field_a_key_a_schema_and_an_input_of_the_page() {
        let mut settings = Longer::default();
        assert_eq!(TABLES, [("train", "Training")]);
        assert_eq!((settings.train.sharpness, settings.origins.len()), (None, 0));
        assert!(settings.assign("train.sharpness", &0.5.into()));
        assert_eq!(settings.train, Train { sharpness: Some(0.5) });
        assert_eq!(settings.value("train.sharpness"), Ok(Some(0.5.into())));
        let mut copied = Longer::default();
        copied.copy("train.sharpness", &settings);
        assert_eq!(copied.train, settings.train);

        let list = [LIST, LONGER].concat();
        let schema = json_schema(&list);
        let property = &schema["properties"]["train"]["properties"]["sharpness"];
        assert_eq!(property["exclusiveMaximum"], 1);
        assert_eq!(property["description"], "How sharp [default: not sharp]");
        let page = typescript(&list);
        for part in
            ["    /** How sharp */\n    sharpness: number | null;\n", "\"label\":\"Sharpness\""]
        {
            assert!(page.contains(part), "{page}");
        }
    }
}
