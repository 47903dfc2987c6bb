// The first file of this room.
