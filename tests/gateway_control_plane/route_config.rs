//! The descriptors that Envoy makes of a request, by the route configuration that Envoy Gateway gave it.
//!
//! What it deliberately does not do: understand every action. It panics at one that the guide's policy does not use.

use serde_json::Value;

/// A request: its headers, and the address that it comes from, which is in each network that the policy names.
pub(crate) struct Incoming<'r> {
    pub(crate) headers: &'r [(&'r str, &'r str)],
    pub(crate) address: &'r str,
}

/// What Envoy asks: the domain, and the entries of each descriptor.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) domain: String,
    pub(crate) descriptors: Vec<Vec<(String, String)>>,
}

impl Incoming<'_> {
    /// What the first route that has limits asks, by Envoy's `/config_dump`.
    pub(crate) fn question(&self, config: &Value) -> Question {
        let routes = config["configs"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|dump| dump["dynamic_route_configs"].as_array())
            .flatten()
            .flat_map(|dump| dump["route_config"]["virtual_hosts"].as_array().unwrap())
            .flat_map(|host| host["routes"].as_array().unwrap());
        let mut limits = routes.filter_map(|route| {
            let filters = route.get("typed_per_filter_config")?;
            filters.get("envoy.filters.http.ratelimit")
        });
        let limits = limits
            .next()
            .unwrap_or_else(|| panic!("no route with limits in {config:#}"));
        let descriptors = limits["rate_limits"].as_array().unwrap().iter();
        Question {
            domain: limits["domain"].as_str().unwrap().to_owned(),
            descriptors: descriptors
                .filter_map(|limit| {
                    let actions = limit["actions"].as_array().unwrap().iter();
                    actions.map(|action| self.entry(action)).collect()
                })
                .collect(),
        }
    }

    /// The entry that an action adds. Without one, Envoy does not ask for the descriptor.
    fn entry(&self, action: &Value) -> Option<(String, String)> {
        let (kind, action) = action.as_object().unwrap().iter().next().unwrap();
        let text = |field: &str| action[field].as_str().unwrap().to_owned();
        let value = match kind.as_str() {
            "generic_key" => text("descriptor_value"),
            "request_headers" => {
                let name = text("header_name");
                let header = self.headers.iter().find(|(given, _)| *given == name)?;
                header.1.to_owned()
            }
            "remote_address_match" => text("descriptor_value")
                .replace("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", self.address),
            _ => panic!("{kind}: {action}"),
        };
        Some((text("descriptor_key"), value))
    }
}
