"""Small workers that the README and the tests run. They use the public names only, as a user's would."""
