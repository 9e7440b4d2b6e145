"""What a plan is made of: the search for a number of parts, ways of cutting, the room that parts must fit into."""
