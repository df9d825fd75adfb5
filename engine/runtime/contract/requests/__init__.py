"""Operations on detectors, their replies and routes, and the current request."""
